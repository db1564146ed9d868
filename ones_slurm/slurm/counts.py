"""Slurm's per-node counts, as in SLURM_TASKS_PER_NODE: `72(x2),40` is 72, 72 and 40."""

import re

_COUNT = re.compile(r"\s*(\d{1,9})(?:\(x(\d{1,9})\))?\s*", re.ASCII)
# Ours, because no Slurm has a million nodes.
_MOST_NODES = 1_000_000


def read_counts(text: str | None) -> tuple[int, ...] | None:
    """One number per node; None for text that is no such list."""
    counts: list[int] = []
    for part in (text or "").split(","):
        match = _COUNT.fullmatch(part)
        if match is None:
            return None
        repeats = int(match[2] or 1)
        if len(counts) + repeats > _MOST_NODES:
            return None
        counts += [int(match[1])] * repeats
    return tuple(counts)
