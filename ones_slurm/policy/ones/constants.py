"""The constants of the rule and of the score, which a site may set (see `study/tuning.py`)."""

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Constants

DEFAULTS = Constants()


def read_constants(words: list[str]) -> Constants:
    """Those that a policy's full name gives: `alpha=1.2 grow_below=0.65`. Raises `UsageError`."""
    try:
        return msgspec.convert(dict(word.split("=", 1) for word in words), Constants, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(
            f"constants {' '.join(words)!r} are not understood: {error}",
            hint=f"as alpha=1.2; there are {', '.join(Constants.__struct_fields__)}",
        ) from error
