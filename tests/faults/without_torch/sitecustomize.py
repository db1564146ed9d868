"""On the path of the emulated trainings: a machine without torch, so that `ones-run` starts in a tenth of the time."""

import sys

sys.modules["torch"] = None  # type: ignore[assignment]  # find_spec and import then find none
