"""Optimus: GPUs one by one to whoever gains the most time from one more (Peng et al., EuroSys 2018, section 4.1).

The gain of a job is its remaining time now less that with one GPU more. What remains is what its script still has to
run. The paper fits a curve to the loss of a job that does not know its end; here it is the expectation of the predictor
of `ones`, which knows more. Speeds come from its own measurements. Everybody gets one GPU first, in the order of
submission.
"""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.ones.progress import Predictor, curve_of, fit_predictor
from ones_slurm.policy.peers.elastic import Candidate, candidates, per_node, plan, room_for
from ones_slurm.policy.peers.goodput import Floats

# Sizes are reviewed so often, as in the paper; in between only those who wait are served.
REVIEW_S = 600.0


class Optimus:
    """Marginal gain, greedily; a running job is moved at most once in `REVIEW_S`."""

    name = "optimus"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Minimum sizes first, then one GPU after the other."""
        jobs = candidates(view)
        settled = {each.job.job_id for each in jobs if _lately_moved(each, view.now_s)}
        left = room_for(view, jobs)
        sizes = {each.job.job_id: each.job.gpus for each in jobs if each.job.job_id in settled}
        left -= sum(sizes.values())
        open_jobs = [each for each in jobs if each.job.job_id not in settled]
        for each in open_jobs:
            sizes[each.job.job_id] = each.low if each.low <= left else 0
            left -= sizes[each.job.job_id]
        predictor = fit_predictor(view.past)
        to_come = {each.job.job_id: _left(each, predictor) for each in open_jobs}
        _pour(open_jobs, sizes, to_come, left, per_node(view))
        return plan(view, jobs, sizes, "gains the most from its last GPU")


def _pour(
    jobs: Sequence[Candidate], sizes: dict[str, int], to_come: Mapping[str, float], left: int, per_node: int
) -> None:
    def gain(each: Candidate) -> float:
        return _gain(each, speeds[each.job.job_id], sizes[each.job.job_id], to_come[each.job.job_id])

    speeds = {each.job.job_id: each.speed(per_node) for each in jobs}
    heap = [(-gain(each), place, each) for place, each in enumerate(jobs)]
    heapq.heapify(heap)
    while left and heap:
        best, place, each = heapq.heappop(heap)
        if best >= 0:
            return
        sizes[each.job.job_id] += 1
        left -= 1
        heapq.heappush(heap, (-gain(each), place, each))


def _gain(each: Candidate, speed: Floats | None, gpus: int, left: float) -> float:
    """Seconds that one more GPU saves; 0 where it may not or need not have one."""
    if speed is None or not 0 < gpus < each.high or speed[gpus] <= 0 or speed[gpus + 1] <= 0:
        return 0.0
    return float(left / speed[gpus] - left / speed[gpus + 1])


def _left(each: Candidate, predictor: Predictor) -> float:
    """Samples to come, told or predicted; 0 while nothing can be predicted."""
    told = each.samples_left()
    if told is not None:
        return told
    curve = curve_of(each.job.progress) if each.job.progress is not None else None
    return predictor.share(curve).left(curve.samples) if curve is not None else 0.0


def _lately_moved(each: Candidate, now_s: float) -> bool:
    start_s = each.job.start_s
    return bool(each.job.allocation) and bool(each.job.speeds) and start_s is not None and now_s - start_s < REVIEW_S
