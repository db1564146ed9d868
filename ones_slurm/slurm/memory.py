"""Slurm's memory sizes: `4G`, `62.50G`, `5000Mc` (per CPU, before 21.08), `0n` (per node, before 21.08)."""

import re
from typing import Literal

import msgspec

_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)([KMGTP]?)B?([cn]?)\s*", re.ASCII)
_MIB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_PER: dict[str, Literal["", "cpu", "node"]] = {"": "", "c": "cpu", "n": "node"}


class Memory(msgspec.Struct, frozen=True):
    """A size in MiB, and what it is for: each `cpu`, each `node`, or "" where the text does not say."""

    mib: float
    per: Literal["", "cpu", "node"] = ""


def read_memory(text: str | None) -> Memory | None:
    """A number without a unit is in MiB, as in Slurm; None for text that is no size."""
    match = _SIZE.fullmatch(text or "")
    if match is None:
        return None
    return Memory(float(match[1]) * _MIB[match[2]], _PER[match[3]])
