"""The file of `ones report --html`: what happened by the report, beside it what the simulator makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ones_slurm.cli.bar import progress

if TYPE_CHECKING:
    from ones_slurm.engine.journal import Journal
    from ones_slurm.model.cluster import ClusterView
    from ones_slurm.model.settings import Site
    from ones_slurm.report.ledger import Ledger
    from ones_slurm.report.page_data import Comparison
    from ones_slurm.report.segments import JobHistory
    from ones_slurm.report.selection import Selection
    from ones_slurm.slurm.client import AccountingRow

# Ours: half a minute where most of them wait at a time; `ones sim whatif` has more patience.
MOST_SIMULATED = 2000


def write_page(
    path: Path,
    jobs: Sequence[JobHistory],
    book: Ledger,
    selection: Selection,
    site: Site,
    *,
    now_s: float,
    journal: Journal | None,
) -> None:
    """Writes the page, whole or not at all. Raises `UsageError` where it cannot be written."""
    from ones_slurm.model.errors import UsageError
    from ones_slurm.report.page import report_page
    from ones_slurm.report.page_courses import MOST_POINTS, courses_of

    since_s = min(job.segments[0].submit_s for job in jobs)
    job_ids = {job.job_id for job in jobs}
    views: Iterable[ClusterView] = ()
    nodes: dict[str, int] = {}
    if journal is not None:
        views = journal.views(since_s, now_s, MOST_POINTS)
        # Of all jobs of the time: then nodes that none of them held stood idle.
        if not (selection.users or selection.accounts or selection.partitions or selection.job_ids):
            last = journal.views(since_s, now_s, 1)
            nodes = {node.name: node.gpus for view in last for node in view.nodes if node.gpus}
    comparison, why_not = _comparison(jobs, book.rows(selection), site, now_s)
    text = report_page(
        jobs,
        site=site.name,
        now_s=now_s,
        gpus_per_node=nodes,
        courses=courses_of(sorted(job_ids), book.points, views),
        comparison=comparison,
        why_no_comparison=why_not,
    )
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", hint="name a file in a folder that is yours"
        ) from error


def _comparison(
    jobs: Sequence[JobHistory], rows: Sequence[AccountingRow], site: Site, now_s: float
) -> tuple[Comparison | None, str]:
    """What would have been, or a sentence on why nobody knows."""
    from ones_slurm.model.errors import OnesError
    from ones_slurm.study.timelines import beside

    if len(jobs) > MOST_SIMULATED:
        return None, f"Not simulated: {len(jobs)} jobs take too long for a page; `ones sim whatif --html` does it."
    try:
        with _bar() as told:
            return beside(jobs, rows, site, now_s=now_s, told=told), ""
    except OnesError as error:
        return None, f"Not simulated: {error.message}."


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None] | None]:
    with progress() as shown:
        if shown is None:
            yield None
            return
        tasks = {}

        def told(policy: str, over: int, all_jobs: int) -> None:
            if policy not in tasks:
                tasks[policy] = shown.add_task(f"simulating {policy}", total=all_jobs)
            shown.update(tasks[policy], completed=over)

        yield told
