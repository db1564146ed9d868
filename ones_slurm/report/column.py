"""What a column of the report is."""

from collections.abc import Callable
from typing import Any

import msgspec

from ones_slurm.report.shown import show


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column: `key` names it for `-o` and in JSON, `value` takes it from a line, `show` prints it."""

    key: str
    title: str
    what: str
    value: Callable[[Any], Any]
    show: Callable[[Any], str] = show
    right: bool = False
    default: bool = True
