"""What was trained in each segment, and what was lost, from a job's own reports of how far it was.

A job that comes back from a checkpoint goes on at fewer samples than it had last reported: the difference was trained
for nothing. Reports are untrusted and come late by up to a tick, so all of it is an estimate, bounded by what was told.
"""

import json
import math
from collections.abc import Callable, Sequence

import msgspec

from ones_slurm.engine.records import Point
from ones_slurm.report.segments import JobHistory, Segment


def with_samples(job: JobHistory, points: Sequence[Point]) -> JobHistory:
    """The history with samples, lost samples, efficiency and bubbles of the segments in which the job said a word."""
    spoken = _by_segment(job.segments, points)
    numbers = sorted(spoken)
    # Where each of them begins to count: no later than where the one before had come to.
    begins: dict[int, int] = {}
    reached: int | None = None
    for number in numbers:
        first = min(point.samples for point in spoken[number])
        begins[number] = _at_start(job.segments[number], spoken[number][0]) if reached is None else min(first, reached)
        reached = max(spoken[number][-1].samples, begins[number])
    segments = list(job.segments)
    for number, following in zip(numbers, [*numbers[1:], None], strict=True):
        last = max(spoken[number][-1].samples, begins[number])
        kept_to = last if following is None else begins[following]
        segments[number] = msgspec.structs.replace(
            segments[number],
            samples=max(kept_to - begins[number], 0),
            lost_samples=last - kept_to,
            efficiency=_mean(spoken[number], _efficiency),
            bubble=_mean(spoken[number], _bubble),
        )
    return msgspec.structs.replace(job, segments=tuple(segments))


def efficiency(grad_sqr: float, grad_var: float, batch: int, base_batch: int) -> float:
    """What a sample at this batch is worth beside one at the base batch, 1 at most.

    From the gradient's squared norm and variance: (var + sqr) / (var + sqr · B/B0), which is the gain of Johnson et al.
    (AdaScale SGD, 2020) over B/B0, called statistical efficiency by Qiao et al. (Pollux, 2021).
    """
    scale = batch / base_batch
    return min((grad_var + grad_sqr) / (grad_var + grad_sqr * scale), 1.0)


def _by_segment(segments: Sequence[Segment], points: Sequence[Point]) -> dict[int, list[Point]]:
    """The reports by segment, those from a pause counted to the segment before it."""
    started = [number for number, segment in enumerate(segments) if segment.start_s is not None and segment.duration_s]
    found: dict[int, list[Point]] = {}
    for point in points:
        before = [number for number in started if (segments[number].start_s or 0) < point.at_s]
        if before:
            found.setdefault(before[-1], []).append(point)
    return found


def _at_start(segment: Segment, first: Point) -> int:
    """Where a job began that first spoke some time after its start."""
    since_s = first.at_s - (segment.start_s or 0)
    rate = first.samples_per_s if math.isfinite(first.samples_per_s) else 0.0
    return max(first.samples - math.ceil(max(rate, 0.0) * since_s), 0)


def _mean(points: Sequence[Point], of: Callable[[Point, dict[str, float]], float | None]) -> float | None:
    found = [value for point in points if (value := of(point, json.loads(point.metrics))) is not None]
    return math.fsum(found) / len(found) if found else None


def _efficiency(point: Point, metrics: dict[str, float]) -> float | None:
    sqr, var = metrics.get("grad_sqr"), metrics.get("grad_var")
    sound = sqr is not None and var is not None and sqr > 0 and var >= 0 and math.isfinite(sqr + var)
    if not sound or not point.batch or not point.base_batch:
        return None
    return efficiency(sqr or 0.0, var or 0.0, point.batch, point.base_batch)


def _bubble(_: Point, metrics: dict[str, float]) -> float | None:
    share = metrics.get("bubble")
    return share if share is not None and 0 <= share <= 1 else None
