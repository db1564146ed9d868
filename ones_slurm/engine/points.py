"""Which of a job's many progress reports are worth a row of their own: how far a training was, over time.

A report a tick would fill the disk; one a minute tells the same. Beside these the first and the last at each size are
kept, because what a size has achieved, and what a crash has lost, is the difference between them.
"""

import msgspec

from ones_slurm.engine.records import Point
from ones_slurm.model.cluster import ClusterView, JobView

# Ours: a day of a job is then 1440 rows of some 100 bytes.
EVERY_S = 60.0


class Points:
    """Remembers the last report of each job, written down or not."""

    def __init__(self) -> None:
        self._written: dict[str, Point] = {}
        self._latest: dict[str, Point] = {}

    def worth_keeping(self, view: ClusterView) -> list[Point]:
        """What is to be written after this view."""
        here = {job.job_id: _point(job, view.now_s) for job in view.jobs if job.progress is not None}
        kept = []
        for job_id, point in here.items():
            before = self._written.get(job_id)
            if before is not None and _is_another_run(self._latest[job_id], point):
                kept += self._unwritten(job_id)
            if before is None or _is_news(before, point) or _is_another_run(self._latest[job_id], point):
                kept.append(point)
                self._written[job_id] = point
            self._latest[job_id] = point
        for gone in self._latest.keys() - here.keys():
            kept += self._unwritten(gone)
            del self._latest[gone]
            self._written.pop(gone, None)
        return kept

    def _unwritten(self, job_id: str) -> list[Point]:
        """The last report of a job, if that was not written."""
        latest = self._latest.get(job_id)
        same = latest is None or latest.at_s == self._written[job_id].at_s
        return [] if same or latest is None else [latest]


def _is_another_run(before: Point, point: Point) -> bool:
    """Whether the job has got another size or batch, or has gone back to a checkpoint."""
    was, now = ((one.generation, one.batch, one.gpus) for one in (before, point))
    return was != now or point.samples < before.samples


def _is_news(before: Point, point: Point) -> bool:
    return point.samples != before.samples and point.at_s - before.at_s >= EVERY_S


def _point(job: JobView, now_s: float) -> Point:
    assert job.progress is not None
    return Point(
        job_id=job.job_id,
        generation=job.generation,
        at_s=now_s,
        samples=job.progress.samples,
        samples_per_s=job.progress.samples_per_s,
        loss=job.progress.loss,
        batch=job.batch,
        base_batch=job.progress.base_batch or 0,
        gpus=job.gpus,
        metrics=msgspec.json.encode(job.progress.metrics).decode(),
    )
