"""How long a decision takes, by the size of the cluster: processor time of one core, the first decision left out."""

import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from matplotlib.figure import Figure

from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView, Speed
from ones_slurm.model.sockets import Policy
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.ones.situation import situation_of
from ones_slurm.policy.registry import policy_named

ROUNDS = 7
TASKS = (
    ("psrpt", 64, 64, 2.0),
    ("ones", 64, 64, 20.0),
    ("ones", 1024, 500, 300.0),
    ("ones", 10_240, 2000, 2000.0),
)
# GPUs and jobs of the growth curve.
GROWTH = ((64, 64), (256, 256), (1024, 500), (1024, 1024), (4096, 1000), (10_240, 2000))
PLOT = Path(__file__).resolve().parent.parent / "build" / "policy-growth.svg"


def run() -> list[dict[str, Any]]:
    """One row a task, and how the cost grows with the number of jobs times that of sizes."""
    rows = [
        {
            "name": f"{name}: decision at {gpus} GPUs, {jobs} jobs",
            "value": round(decision_ms(policy_named(name), gpus, jobs), 2),
            "unit": "ms",
            "goal": goal,
            "better": "lower",
            "note": f"median of {ROUNDS}, half of the jobs running, one core",
        }
        for name, gpus, jobs, goal in TASKS
    ]
    curves = {name: [_growth_point(name, *size) for size in GROWTH] for name in ("psrpt", "ones")}
    _plot(curves)
    for name, points in curves.items():
        (few, little_ms), (many, much_ms) = points[0], points[-1]
        rows.append(
            {
                "name": f"{name}: growth of its cost over growth of jobs x sizes",
                "value": round(much_ms / little_ms / (many / few), 2),
                "unit": "ratio",
                "goal": 2.0,
                "better": "lower",
                "note": f"{GROWTH[0]} to {GROWTH[-1]} GPUs and jobs; 1 is linear; see build/{PLOT.name}",
            }
        )
    return rows


def _plot(curves: dict[str, list[tuple[int, float]]]) -> None:
    """Decision time over jobs times sizes, both logarithmic, beside a straight line of slope one."""
    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    for name, points in curves.items():
        axes.loglog(*zip(*points, strict=True), "o-", label=name)
    (few, little_ms), (many, _) = curves["ones"][0], curves["ones"][-1]
    axes.loglog([few, many], [little_ms, little_ms * many / few], ":", color="grey", label="linear")
    axes.set_xlabel("jobs × candidate sizes")
    axes.set_ylabel("ms a decision, one core")
    axes.legend()
    figure.savefig(PLOT, metadata={"Date": None})


def _growth_point(name: str, gpus: int, jobs: int) -> tuple[int, float]:
    at = situation_of(imagined_view(gpus, jobs, np.random.default_rng(4)))
    return at.goodput.size, decision_ms(policy_named(name), gpus, jobs)


def decision_ms(policy: Policy, gpus: int, jobs: int) -> float:
    """Median milliseconds of processor time of decisions on views that go on from one another."""
    rng = np.random.default_rng(4)
    seen = imagined_view(gpus, jobs, rng)
    spent = []
    for number in range(ROUNDS + 1):
        began_s = time.process_time()
        policy.decide(seen, np.random.default_rng([1, number]))
        spent.append((time.process_time() - began_s) * 1e3)
        seen = later(seen, rng)
    return statistics.median(spent[1:])


def imagined_view(gpus: int, jobs: int, rng: np.random.Generator) -> ClusterView:
    """A cluster of nodes with four GPUs; half of the jobs run, on a node or two each while there are any."""
    nodes = tuple(NodeView(f"n{number:05d}", 4, True) for number in range(gpus // 4))
    free = [node.name for node in nodes]
    made = []
    for number in range(jobs):
        count = int(rng.integers(1, 3)) if number % 2 else 0
        held = tuple((free.pop(), 4) for _ in range(min(count, len(free))))
        made.append(_job(f"{number:05d}", held, rng))
    return ClusterView(10_000.0, nodes, tuple(made), can_reallocate=True)


def later(seen: ClusterView, rng: np.random.Generator) -> ClusterView:
    """A minute on: every running job has made some progress, and its gradients have changed."""
    jobs = []
    for job in seen.jobs:
        told = job.progress
        assert told is not None
        if job.allocation:
            metrics = {**told.metrics, "grad_var": told.metrics["grad_var"] * float(rng.uniform(0.99, 1.02))}
            told = msgspec.structs.replace(told, samples=told.samples + 1000, metrics=metrics)
        jobs.append(msgspec.structs.replace(job, progress=told))
    return msgspec.structs.replace(seen, now_s=seen.now_s + 60.0, jobs=tuple(jobs))


def _job(job_id: str, held: tuple[tuple[str, int], ...], rng: np.random.Generator) -> JobView:
    compute_s, sync_s = float(rng.uniform(0.05, 0.5)), float(rng.uniform(0.005, 0.2))
    sizes = ((1, 1), (1, 4), (2, 8))
    speeds = tuple(
        Speed(nodes, gpus, 32, compute_s + (wait := sync_s * (gpus > 1) * nodes), wait) for nodes, gpus in sizes
    )
    metrics = {"max_batch": 4096.0, "max_local_batch": 128.0, "min_local_batch": 8.0, "grad_sqr": 1.0}
    return JobView(
        job_id=job_id,
        user="ada",
        state=JobState.RUNNING if held else JobState.PENDING,
        asked_nodes=1,
        gpus_per_node=1,
        asked_gpus=1,
        nodes=tuple(name for name, _ in held),
        allocation=held,
        wish=Wish(gpus=Bounds(1, 512), batch=Bounds(32, 4096)),
        elastic=True,
        start_s=9_000.0 if held else None,
        batch=128,
        speeds=speeds,
        progress=Progress(
            samples=1000,
            total_samples=1000 + int(rng.lognormal(12.0, 1.5)),
            base_batch=32,
            metrics={**metrics, "grad_var": float(rng.lognormal(3.0, 1.0))},
        ),
    )
