"""What the elastic peers share: how fast a job would be with so many GPUs, as far as it has measured that."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.policy.peers.goodput import Floats, Table, limits_of, plain_table_of, table_of
from ones_slurm.policy.peers.placing import free_gpus, movable, resized, unmoved


class Candidate(NamedTuple):
    """A job that may be given `low` to `high` GPUs. `speed` by GPUs is None before its first measurement."""

    job: JobView
    low: int
    high: int
    table: Table | None

    def speed(self, per_node: int) -> Floats | None:
        """Goodput by number of GPUs, on as few nodes as hold them; index 0 is no GPU."""
        if self.table is None:
            return None
        return _joined(self.table, per_node)

    def samples_left(self) -> float | None:
        """In samples of the base batch; None when the job says no total."""
        said = self.job.progress
        if said is None or said.total_samples is None:
            return None
        return float(max(said.total_samples - said.samples, 0))


def candidates(view: ClusterView, *, ramp: int = 2) -> list[Candidate]:
    """Jobs that may be moved, in the order of submission; none may have more than `ramp` times what it measured."""
    total = sum(node.gpus for node in view.nodes if node.usable)
    found = []
    for job in movable(view):
        if job.wish is None or job.wish.gpus is None:
            continue
        low, high = job.wish.gpus.low, job.wish.gpus.high
        limits = limits_of(job)
        tried = max((speed.gpus for speed in job.speeds), default=0)
        most = min(high, total, max(ramp * tried, low))
        if limits is not None:
            most = max(min(most, limits.largest // limits.min_local), low)
        table = table_of(job, limits, total) if limits is not None else plain_table_of(job, total)
        found.append(Candidate(job, low, most, table))
    return found


def room_for(view: ClusterView, jobs: Sequence[Candidate]) -> int:
    """GPUs that can be shared out among these jobs."""
    return sum(free_gpus(view, unmoved(view, [each.job for each in jobs])).values())


def per_node(view: ClusterView) -> int:
    """GPUs of the largest node."""
    return max((node.gpus for node in view.nodes), default=1)


def plan(view: ClusterView, jobs: Sequence[Candidate], sizes: Mapping[str, int], reason: str) -> Plan:
    """Targets of these sizes, each at the batch that is best there."""
    places = resized(view, [each.job for each in jobs], sizes)
    return Plan(tuple(_target(each, places[each.job.job_id], reason) for each in jobs))


def _target(each: Candidate, allocation: tuple[tuple[str, int], ...], reason: str) -> Target:
    gpus = sum(count for _, count in allocation)
    batch = int(each.table.batch[int(len(allocation) > 1), gpus]) if each.table is not None and gpus else 0
    return Target(
        job_id=each.job.job_id,
        nodes=len(allocation),
        allocation=allocation,
        batch=batch,
        reason=reason if gpus else "waits: others use the GPUs better",
        numbers={"gpus": float(gpus)},
    )


def _joined(table: Table, per_node: int) -> Floats:
    speed = table.goodput[1].copy()
    speed[: per_node + 1] = table.goodput[0, : per_node + 1]
    return np.asarray(speed)
