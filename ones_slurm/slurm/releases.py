"""The one place that knows how Slurm's releases differ."""

import re
from typing import Self

import msgspec

from ones_slurm.model.errors import Unreachable

_VERSION = re.compile(r"(?<![\d.])(\d{2})\.(\d{1,2})(?:\.(\d{1,3}))?")


class Release(msgspec.Struct, frozen=True, order=True):
    """A release of Slurm, as 22.05.8. Tried here: 22.05, 24.11 and 26.05; what lies between is taken as the older one.

    All of them take the same command for the size of a pending job (`NumNodes=K-K NumTasks= NumCPUs=`, needed together
    by 22.05 and harmless later) and the same node text, so no difference is named for these.
    """

    year: int
    month: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `scontrol --version`, `SLURM_VERSION`, or the like. Raises `Unreachable` when there is no version."""
        match = _VERSION.search(text)
        if match is None:
            raise Unreachable(f"{text.strip()[:80]!r} names no release of Slurm")
        return cls(int(match[1]), int(match[2]), int(match[3] or 0))

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02}.{self.patch}"

    @property
    def series(self) -> tuple[int, int]:
        """The part of the number that binary interfaces depend on: 22.05."""
        return (self.year, self.month)

    @property
    def scontrol_has_json(self) -> bool:
        """Whether `scontrol --json show job N` works; 22.05 has no such option and its squeue ignores `-j` in JSON."""
        return self.series >= (24, 11)

    @property
    def sacct_has_restarts(self) -> bool:
        """Whether sacct has a column Restarts."""
        return self.series >= (24, 11)
