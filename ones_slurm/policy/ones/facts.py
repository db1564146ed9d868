"""What a job says of itself, bounded: nothing that it reports, however absurd, leaves these ranges."""

import functools
import math
from collections.abc import Sequence

import msgspec

from ones_slurm.model.cluster import JobView, Past, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.policy.sizes import base_batch

# Beyond these a figure is a fault or a lie, and is passed over (ours).
MIN_STEP_S, MAX_STEP_S = 1e-7, 1e5
MAX_GPUS = 1 << 20
MAX_SAMPLES = 1e18
MAX_BATCH = 2.0**30
# Noise scale in base batches that is assumed where gradients are not reported: so much of the way, geometrically, from
# the base batch to the largest allowed one (ours: the middle, for users allow what still learns at all).
UNKNOWN_NOISE_AT = 0.5
MIN_NOISE, MAX_NOISE = 1e-3, 1e6
# Ended jobs of the same kind that count; the latest ones (ours).
MOST_PAST = 8
# Enough points for a fit; later ones say more of the job as it is now (ours).
MAX_SPEEDS = 64


class Limits(msgspec.Struct, frozen=True):
    """The batch sizes that a job may use; global ones in samples, `min_local` and `max_local` in samples a GPU.

    A job that says how many samples fit on a GPU can also accumulate gradients; of others only the batch that they
    began with is known to fit, and that they cannot is assumed.
    """

    base: float
    largest: float
    min_local: float
    max_local: float
    accumulates: bool


class Facts(msgspec.Struct, frozen=True):
    """One job's word, made safe. `left` and `done` count samples worth one of the base batch; None is not known.

    `noise` is the gradient noise scale in base batches.
    """

    limits: Limits
    noise: float
    done: float
    left: float | None
    speeds: tuple[Speed, ...]


class Kind(msgspec.Struct, frozen=True):
    """What earlier jobs of the same user and recipe measured, said early on, and had trained on in the end (median)."""

    speeds: tuple[Speed, ...] = ()
    early: Progress | None = None
    samples: float | None = None


def facts_of(job: JobView, kind: Kind | None = None) -> Facts:
    """What can be believed of a job's reports; where it has none yet, of those of earlier jobs of its kind."""
    early = kind.early if kind is not None and kind.early is not None else Progress()
    progress = job.progress if job.progress is not None else Progress()
    told = msgspec.structs.replace(
        progress, metrics={**early.metrics, **progress.metrics}, base_batch=progress.base_batch or early.base_batch
    )
    limits = _limits(job, told)
    done, left = _work(told)
    if left is None and kind is not None and kind.samples is not None and kind.samples > done:
        left = kind.samples - done
    return Facts(limits, _noise(told, limits), done, left, credible(job.speeds))


def kinds_of(past: Sequence[Past]) -> dict[tuple[str, str], Kind]:
    """What the latest ended jobs of each user and recipe leave to their next; who has no recipe leaves nothing."""
    jobs: dict[tuple[str, str], list[Past]] = {}
    for job in past:
        if job.recipe:
            jobs.setdefault((job.user, job.recipe), []).append(job)
    return {name: _kind(tuple(alike[-MOST_PAST:])) for name, alike in jobs.items()}


def _kind(jobs: tuple[Past, ...]) -> Kind:
    ends = sorted(float(job.samples) for job in jobs if job.samples > 0)
    reports = [job.reports[0] for job in jobs if job.reports]
    return Kind(
        speeds=credible(tuple(speed for job in jobs for speed in job.speeds)),
        early=reports[-1] if reports else None,
        samples=min(ends[len(ends) // 2], MAX_SAMPLES) if ends else None,
    )


@functools.lru_cache(maxsize=16384)
def credible(speeds: tuple[Speed, ...]) -> tuple[Speed, ...]:
    """The measurements that are numbers a machine can show, the latest `MAX_SPEEDS` of them."""
    return tuple(speed for speed in speeds if _is_credible(speed))[-MAX_SPEEDS:]


def bounded(value: float | None, low: float, high: float) -> float | None:
    """The value if it is a number within the range, else None."""
    return float(value) if value is not None and math.isfinite(value) and low <= value <= high else None


def _is_credible(speed: Speed) -> bool:
    times = math.isfinite(speed.step_s) and math.isfinite(speed.sync_s)
    return (
        times
        and MIN_STEP_S <= speed.step_s <= MAX_STEP_S
        and 0.0 <= speed.sync_s < speed.step_s
        and 1 <= speed.nodes <= speed.gpus <= MAX_GPUS
        and 1 <= speed.local_batch <= MAX_BATCH
    )


def _limits(job: JobView, progress: Progress) -> Limits:
    told = progress.metrics
    base = float(base_batch(job) or 1)
    largest = bounded(told.get("max_batch"), base, MAX_BATCH) or (MAX_BATCH if "max_local_batch" in told else base)
    if job.wish is not None and job.wish.batch is not None:
        allowed = float(job.wish.batch.high)
        largest = min(largest, allowed) if "max_batch" in told or "max_local_batch" in told else allowed
    else:
        largest = base if job.batch == 0 or not job.speeds else max(base, largest)
    largest = max(largest, base)
    fits = bounded(told.get("max_local_batch"), 1.0, MAX_BATCH)
    max_local = fits or max(base / _fewest_gpus(job), 1.0)
    min_local = bounded(told.get("min_local_batch"), 1.0, max_local) or 1.0
    return Limits(base, largest, min_local, max_local, fits is not None)


def _fewest_gpus(job: JobView) -> int:
    """GPUs at the smallest size that the user allows, for which the script's own batch was chosen."""
    if job.wish is not None and job.wish.gpus is not None:
        return max(job.wish.gpus.low, 1)
    nodes = job.wish.nodes.low if job.wish is not None and job.wish.nodes is not None else job.asked_nodes
    return max(nodes, 1) * max(job.gpus_per_node, 1)


def _noise(progress: Progress, limits: Limits) -> float:
    sqr = bounded(progress.metrics.get("grad_sqr"), 1e-30, 1e30)
    var = bounded(progress.metrics.get("grad_var"), 0.0, 1e30)
    if sqr is None or var is None:
        return float((limits.largest / limits.base) ** UNKNOWN_NOISE_AT)
    return min(max(var / sqr, MIN_NOISE), MAX_NOISE)


def _work(progress: Progress) -> tuple[float, float | None]:
    """(done, left). Who trains on beyond its own total has told a wrong one, so that what is left is not known."""
    done = min(float(progress.samples), MAX_SAMPLES)
    total = bounded(progress.total_samples, 1.0, MAX_SAMPLES)
    return done, max(total - done, 1.0) if total is not None and total >= done else None  # at its total it is ending
