import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "daemon"))  # noqa: PTH118, PTH120
