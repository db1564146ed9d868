"""What there is to give: nodes of each kind, which jobs may have them, and what they hold of them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ones_slurm.model.cluster import ClusterView, JobView, NodeView
from ones_slurm.model.pools import fits, kind_of
from ones_slurm.policy.ones.goodput import Ints

Bools = NDArray[np.bool_]


def room_of(view: ClusterView) -> list[tuple[NodeView, int]]:
    """Usable nodes and the units of each that no rigid job holds."""
    rigid = [job for job in view.jobs if not job.elastic]
    if not view.can_reallocate:
        taken = {name for job in rigid for name in job.nodes}
        return [(node, 1) for node in view.nodes if node.usable and node.name not in taken]
    held: Counter[str] = Counter()
    for job in rigid:
        held.update(dict(job.allocation))
    return [(node, max(node.gpus - held[node.name], 0)) for node in view.nodes if node.usable]


def pools_of(
    room: Sequence[tuple[NodeView, int]], jobs: Sequence[JobView], *, by_type: bool
) -> tuple[Ints, Bools, Ints, tuple[frozenset[str], ...]]:
    """Kinds of nodes, each a pool: (units, where jobs may run, what they hold there, the nodes' names).

    `by_type` keeps GPU types apart; a batch system that hands out whole nodes of a partition mixes them.
    """
    kind = {node.name: (*kind_of(node), node.gpu_type if by_type else "") for node, _ in room}
    kinds = sorted(set(kind.values()))
    pool_of = {name: kinds.index(each) for name, each in kind.items()}
    pools = np.zeros(max(len(kinds), 1), int)
    for node, units in room:
        pools[pool_of[node.name]] += units
    held_in = np.zeros((len(jobs), len(pools)), int)
    allowed: dict[tuple[str, int], list[bool]] = {}
    for j, job in enumerate(jobs):
        for name, gpus in job.allocation or ((name, 1) for name in job.nodes):
            if name in pool_of:
                held_in[j, pool_of[name]] += gpus
        key = (job.partition, job.gpus_per_node)
        if key not in allowed:
            allowed[key] = [fits(job.partition, job.gpus_per_node, (parts, gpus)) for parts, gpus, _ in kinds] or [
                False
            ]
    may = np.array([allowed[job.partition, job.gpus_per_node] for job in jobs], bool).reshape(len(jobs), len(pools))
    for j, job in enumerate(jobs):
        if job.move is not None:  # the nodes that it is on its way to count as its own
            held_in[j, int(np.argmax(np.where(may[j], pools, -1)))] += max(job.move.nodes - int(held_in[j].sum()), 0)
    nodes_of = tuple(frozenset(name for name, at in pool_of.items() if at == p) for p in range(len(pools)))
    return pools, may | (held_in > 0), held_in, nodes_of
