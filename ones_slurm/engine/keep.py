"""Which nodes a job keeps when it becomes smaller."""

import re
from collections.abc import Collection

from ones_slurm.model.cluster import JobView


def choose_keep(job: JobView, nodes: int, preferred: Collection[str], usable: Collection[str]) -> tuple[str, ...]:
    """The batch host (nobody can take it away), then the policy's choice, then sound nodes, then neighbours by name."""
    mine = sorted(job.nodes, key=natural)
    host = mine.index(job.batch_host) if job.batch_host in mine else 0

    def rank(place: int) -> tuple[bool, bool, bool, int, int]:
        name = mine[place]
        return place != host, name not in preferred, name not in usable, abs(place - host), place

    chosen = sorted(range(len(mine)), key=rank)[:nodes]
    return tuple(mine[place] for place in sorted(chosen))


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts c2 before c10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
