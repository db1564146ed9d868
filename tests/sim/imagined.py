"""Small imagined worlds: nodes, jobs and costs for stories."""

from ones_slurm.model.cluster import NodeView
from ones_slurm.model.settings import Costs
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.sim.job import Submission
from ones_slurm.sim.rigid import TracedRun


def nodes(count: int, gpus: int = 4) -> list[NodeView]:
    return [NodeView(f"n{number}", gpus, usable=True) for number in range(1, count + 1)]


def traced(job_id: str, *, submit_s: float = 0.0, gpus: int = 1, run_s: float = 100.0, **more: object) -> Submission:
    """A job that runs for `run_s` on `gpus` GPUs, and asks for a time limit of exactly that."""
    high = more.pop("high", gpus)
    low = more.pop("low", gpus)
    fields = {"time_limit_s": run_s, "includes_start": True, "wish": Wish(gpus=Bounds(low, high))} | more
    return Submission(
        job_id=job_id, submit_s=submit_s, gpus=gpus, begin=lambda: TracedRun(run_s, gpus, talks=low < high), **fields
    )


def go_to(cluster, time_s):
    """Lets time pass, whatever happens on the way; returns all of it."""
    events = cluster.wait(time_s)
    while cluster.now() < time_s and cluster.can_go_on():
        events += cluster.wait(time_s)
    return events + cluster.wait(cluster.now())


FREE = Costs(start_s=0.0, save_s=0.0, rescale_s=0.0, rebatch_s=0.0)
