"""The published limits of ONES (arXiv 2108.03645): how many GPUs a job may have next, and the batch for so many.

A job starts on one GPU, and its limit doubles once it has run for two epochs. What the artifact remembers from one
generation to the next is read off the view here, with one rule left out: it also halves the limit of a job that was
stopped and not chosen again.
"""

import statistics
from collections.abc import Sequence

import msgspec

from ones_slurm.model.cluster import JobView
from ones_slurm.policy.ones.facts import credible
from ones_slurm.policy.ones.progress import Curve, curve_of

LEAST_EPOCHS = 2.0  # before a job is scaled or predicted
GROWTH_OVER_REQUEST = 4  # no job gets more than four times what was asked for
SIGMA = 1.0  # how hard the largest job is scaled down when it runs long


class Limit(msgspec.Struct, frozen=True):
    """`now` is R, the limit for placing; `prepared` is M, up to which idle GPUs may still be filled. 0: never ran."""

    now: int
    prepared: int


def limits_of(jobs: Sequence[JobView], gpus: int, now_s: float) -> list[Limit]:
    """One limit a job."""
    limits = [_limit(job, gpus) for job in jobs]
    started_s = [now_s - job.start_s for job in jobs if job.gpus and job.start_s is not None]
    running = [at for at, job in enumerate(jobs) if job.gpus]
    if running:
        at = max(running, key=lambda at: jobs[at].gpus)
        job = jobs[at]
        median_s, ran_s = statistics.median(started_s or [0.0]), now_s - (job.start_s or now_s)
        if 2 * job.gpus >= gpus and ran_s > median_s > 0.0:
            lower = max(1, int(2 * job.gpus / (SIGMA * ran_s / median_s + 1.0)))
            lower += lower % 2 if lower > 1 else 0
            limits[at] = Limit(lower, lower)  # the artifact forgets M here, so that padding undoes it
    return limits


def epochs_done(job: JobView) -> float:
    """Epochs over, by the job's own count; 0 before the first is."""
    curve = known_curve(job)
    return curve.epochs if curve is not None else 0.0


def known_curve(job: JobView) -> Curve | None:
    """Where the job is, if it has said so."""
    return curve_of(job.progress) if job.progress is not None else None


def batch_at_gpus(base: int, largest: int, gpus: int) -> tuple[int, float]:
    """(global batch, learning-rate factor): B a GPU up to n = c, then about B·c in all; c is `largest` over `base`."""
    most = max(largest // max(base, 1), 1)
    if gpus <= most:
        return base * gpus, float(gpus)
    return max(base * most // gpus, 1) * gpus, float(most)


def _limit(job: JobView, gpus: int) -> Limit:
    asked = max(job.asked_gpus, job.asked_nodes * max(job.gpus_per_node, 1), 1)
    if not job.gpus:
        if epochs_done(job) < LEAST_EPOCHS:
            return Limit(0, 1)
        measured = credible(job.speeds)
        last = min(measured[-1].gpus, gpus) if measured else 1
        return Limit(last, last)
    if epochs_done(job) < LEAST_EPOCHS:
        return Limit(job.gpus, job.gpus)
    prepared = min(gpus, 2 * job.gpus)
    return Limit(max(min(prepared, GROWTH_OVER_REQUEST * asked), 1), prepared)
