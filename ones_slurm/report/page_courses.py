"""How trainings went, by their own word: read from the views that the journal keeps for a week."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from ones_slurm.model.cluster import ClusterView
from ones_slurm.report.page_data import Course

# Ours: a curve on a page shows no more points, and so many views are read in a second or two.
MOST_POINTS = 400


def courses_of(views: Iterable[ClusterView], job_ids: Collection[str]) -> list[Course]:
    """One course for each of these jobs that reported progress; a report that says nothing new is left out."""
    points: dict[str, list[tuple[float, int, float | None]]] = defaultdict(list)
    for view in views:
        for job in view.jobs:
            progress = job.progress
            if progress is None or job.job_id not in job_ids or not job.nodes:
                continue
            told = points[job.job_id]
            if not told or told[-1][1:] != (progress.samples, progress.loss):
                told.append((view.now_s, progress.samples, progress.loss))
    return [Course(job_id=job_id, points=tuple(told)) for job_id, told in points.items()]
