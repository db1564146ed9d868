"""How trainings went, by their own word.

From the points that the ledger keeps for ever, one a minute and at each change, and, where the journal may be
read, from all that its views still hold, which is a week.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ones_slurm.engine.records import Point
from ones_slurm.model.cluster import ClusterView
from ones_slurm.report.page_data import Course

# Ours: a curve on a page shows no more points, and so many views are read in a second or two.
MOST_POINTS = 400


def courses_of(
    job_ids: Iterable[str], points: Callable[[str], Sequence[Point]], views: Iterable[ClusterView] = ()
) -> list[Course]:
    """One course for each of these jobs that reported progress."""
    told = {job_id: {point.at_s: (point.samples, point.loss) for point in points(job_id)} for job_id in job_ids}
    seen: dict[str, tuple[int, float | None]] = defaultdict(lambda: (-1, None))
    for view in views:
        for job in view.jobs:
            if job.progress is None or job.job_id not in told or not job.nodes:
                continue
            word = (job.progress.samples, job.progress.loss)
            if word != seen[job.job_id]:  # a report that says nothing new is no point
                seen[job.job_id] = word
                told[job.job_id][view.now_s] = word
    return [
        Course(job_id=job_id, points=tuple((at_s, *word) for at_s, word in sorted(course.items())[:: _every(course)]))
        for job_id, course in told.items()
        if course
    ]


def _every(course: dict[float, tuple[int, float | None]]) -> int:
    return max(-(-len(course) // MOST_POINTS), 1)
