"""Where evolution earns its place: single decisions by `ones`, with the search switched off and on, by its own score.

Off are the seeds alone: leaving all as it is, the rule, the exact optimum where there is one pool and else the best
sizes at a price, each filled up. The score counts jobs' own times, so 1 % is 1 % of the time of the jobs that matter.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView, Past, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.ones.policy import Ones, cost_of

VIEWS = 20
NODES = 16


def run() -> list[dict[str, Any]]:
    """One row a scenario: by how much the score falls when evolution is switched on, and how often it does."""
    rows = []
    for name, make in SCENARIOS.items():
        gains = []
        for seed in range(VIEWS):
            seen = make(np.random.default_rng(seed))
            off, on = (
                cost_of(seen, Ones(search=search).decide(seen, np.random.default_rng(seed))) for search in (False, True)
            )
            gains.append(100.0 * (1.0 - on / off))
        rows.append(
            {
                "name": f"evolution: {name}",
                "value": round(float(np.mean(gains)), 2),
                "unit": "% less cost",
                "goal": 0.0,
                "better": "higher",
                "note": f"better in {sum(gain > 1e-6 for gain in gains)} of {VIEWS}, worst {min(gains):.2f} %",
            }
        )
    return rows


def one_pool(rng: np.random.Generator) -> ClusterView:
    """Equal nodes: but for places, the exact seed is the optimum."""
    return _view(rng, _nodes([("", (), "")]))


def gpu_types(rng: np.random.Generator) -> ClusterView:
    """Half of the GPUs are twice as fast, as ended jobs have shown."""
    past = tuple(
        Past(user="ada", recipe=f"r{number}", speeds=(_speed(4, 0.3, 0.02 * number, pace, name),))
        for number in (1, 2, 3)
        for name, pace in (("v100", 1.0), ("a100", 2.0))
    )
    return _view(rng, _nodes([("v100", (), ""), ("a100", (), "")]), past=past)


def shared_nodes(rng: np.random.Generator) -> ClusterView:
    """Many small jobs, scattered over nodes that larger ones want whole."""
    return _view(rng, _nodes([("", (), "")]), held=(1, 1, 2, 2, 3), running=20)


def racks(rng: np.random.Generator) -> ClusterView:
    """Four racks; whoever spans two goes through slower links."""
    return _view(rng, _nodes([("", (), f"r{number}") for number in range(4)]), held=(2, 4, 8))


def partitions(rng: np.random.Generator) -> ClusterView:
    """Three partitions that overlap: some nodes are of one, some of two of them."""
    kinds = [("", ("a",), ""), ("", ("a", "b"), ""), ("", ("b", "c"), ""), ("", ("c",), "")]
    return _view(rng, _nodes(kinds), names=("a", "b", "c"))


def competing_moves(rng: np.random.Generator) -> ClusterView:
    """All GPUs but a few are held, and every running job would grow into the same ones."""
    return _view(rng, _nodes([("", (), "")]), held=(2, 4, 4, 4), running=14, waiting=2)


SCENARIOS: dict[str, Callable[[np.random.Generator], ClusterView]] = {
    "one pool (nothing to find)": one_pool,
    "two GPU types, one twice as fast": gpu_types,
    "nodes shared by small jobs": shared_nodes,
    "four racks with slower links": racks,
    "three overlapping partitions": partitions,
    "moves that compete for the same nodes": competing_moves,
}


def _nodes(kinds: list[tuple[str, tuple[str, ...], str]]) -> tuple[NodeView, ...]:
    each = NODES // len(kinds)
    return tuple(
        NodeView(f"n{number:03}", 4, True, gpu_type=kind[0], partitions=kind[1], rack=kind[2])
        for number, kind in ((number, kinds[number // each]) for number in range(NODES))
    )


def _view(
    rng: np.random.Generator,
    nodes: tuple[NodeView, ...],
    *,
    past: tuple[Past, ...] = (),
    held: tuple[int, ...] = (1, 2, 4, 4, 8),
    running: int = 10,
    waiting: int = 12,
    names: tuple[str, ...] = ("",),
) -> ClusterView:
    free = {node.name: node.gpus for node in nodes}
    jobs = []
    for number in range(running + waiting):
        partition = str(rng.choice(names))
        there = [node for node in nodes if free[node.name] and (not partition or partition in node.partitions)]
        kind = (there[0].partitions, there[0].gpu_type) if there else ((), "")
        allocation = []
        wanted = int(rng.choice(held)) if number < running else 0
        for at in rng.permutation(len(there)).tolist():
            node = there[at]
            if wanted and (node.partitions, node.gpu_type) == kind:
                take = min(free[node.name], wanted)
                free[node.name] -= take
                wanted -= take
                allocation.append((node.name, take))
        jobs.append(_job(f"j{number:02}", partition, tuple(sorted(allocation)), rng))
    return ClusterView(10_000.0, nodes, tuple(jobs), can_reallocate=True, past=past)


def _speed(gpus: int, compute_s: float, sync_s: float, pace: float = 1.0, gpu_type: str = "") -> Speed:
    nodes = -(-gpus // 4)
    wait_s = 0.0 if gpus == 1 else sync_s * (1 if nodes == 1 else 6)
    return Speed(nodes, gpus, 32, (compute_s + wait_s) / pace, wait_s / pace, gpu_type)


def _job(job_id: str, partition: str, held: tuple[tuple[str, int], ...], rng: np.random.Generator) -> JobView:
    compute_s, sync_s = float(rng.uniform(0.05, 0.5)), float(rng.uniform(0.002, 0.05))
    told = {"max_batch": 4096.0, "max_local_batch": 128.0, "min_local_batch": 8.0, "grad_sqr": 1.0}
    return JobView(
        job_id=job_id,
        user="ada",
        partition=partition,
        state=JobState.RUNNING if held else JobState.PENDING,
        asked_nodes=1,
        gpus_per_node=1,
        asked_gpus=1,
        nodes=tuple(name for name, _ in held),
        allocation=held,
        wish=Wish(gpus=Bounds(1, 64), batch=Bounds(32, 4096)),
        elastic=True,
        submit_s=8_000.0,
        start_s=9_000.0 if held else None,
        batch=128,
        speeds=tuple(_speed(gpus, compute_s, sync_s) for gpus in (1, 4, 8)),
        progress=Progress(
            samples=1000,
            total_samples=1000 + int(rng.lognormal(12.0, 1.5)),
            base_batch=32,
            metrics={**told, "grad_var": float(rng.lognormal(3.0, 1.0))},
        ),
    )
