"""Nodes counted by kind, so that sizes can be planned for thousands of jobs without naming a node."""

from collections import Counter
from collections.abc import Iterable

from ones_slurm.model.cluster import JobView, NodeView

Kind = tuple[tuple[str, ...], int]


class Pools:
    """How many nodes of each kind there are to give; a kind is the partitions and the GPU count that nodes share.

    A job takes nodes of the kind that the fewest others could use, so partitions may overlap. What is taken always
    fits (never the opposite): with overlapping partitions a cleverer choice may sometimes fit one job more.
    """

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self._left = Counter(kind_of(node) for node in nodes)
        self._fitting: dict[tuple[str, int], list[Kind]] = {}

    def fitting(self, job: JobView) -> list[Kind]:
        """The kinds that the job can run on, the least wanted first."""
        key = (job.partition, job.gpus_per_node)
        if key not in self._fitting:
            self._fitting[key] = sorted((kind for kind in self._left if fits(*key, kind)), key=_wanted)
        return self._fitting[key]

    def left_for(self, job: JobView) -> int:
        """How many nodes the job could still have."""
        return sum(self._left[kind] for kind in self.fitting(job))

    def take(self, job: JobView, nodes: int) -> int:
        """Gives the job up to `nodes` nodes; returns how many it got."""
        wanted = nodes
        for kind in self.fitting(job):
            given = min(self._left[kind], wanted)
            self._left[kind] -= given
            wanted -= given
            if not wanted:
                break
        return nodes - wanted


def kind_of(node: NodeView) -> Kind:
    """What matters of a node to a job that asks for whole nodes."""
    return tuple(sorted(node.partitions)), node.gpus


def fits(partition: str, gpus_per_node: int, kind: Kind) -> bool:
    """Whether a job of that partition and GPU count may run on such nodes. A pending job may name several, `a,b`."""
    partitions, gpus = kind
    named = {name for name in partition.split(",") if name}
    return gpus >= gpus_per_node and (not named or not partitions or not named.isdisjoint(partitions))


def _wanted(kind: Kind) -> tuple[int, int, tuple[str, ...]]:
    return len(kind[0]), kind[1], kind[0]
