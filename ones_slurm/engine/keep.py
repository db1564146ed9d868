"""Which nodes a job keeps when it becomes smaller."""

import re
from collections.abc import Collection

from ones_slurm.model.cluster import JobView


def choose_keep(job: JobView, nodes: int, preferred: Collection[str], usable: Collection[str]) -> tuple[str, ...]:
    """The batch host (nobody can take it away), then the policy's choice, then sound nodes, then neighbours by name.

    Nodes on loan go first, the latest loan before the others, for they are as easily had again. The first node of a
    loan is kept for as long as any other of it, so the others are as sound as that one at best.
    """
    mine = sorted(job.nodes, key=natural)
    host = mine.index(job.batch_host) if job.batch_host in mine else 0
    loans = {name: (number, loan.nodes) for number, loan in enumerate(job.lent, start=1) for name in loan.nodes}

    def rank(place: int) -> tuple[bool, bool, bool, int, int, int]:
        name = mine[place]
        loan, lent = loans.get(name, (0, (name,)))
        first = name == lent[0]
        wanted = name in preferred or (first and not set(preferred).isdisjoint(lent))
        sound = name in usable and lent[0] in usable
        return place != host, not wanted, not sound, loan, -1 if loan and first else abs(place - host), place

    chosen = sorted(range(len(mine)), key=rank)[:nodes]
    return tuple(mine[place] for place in sorted(chosen))


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts c2 before c10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
