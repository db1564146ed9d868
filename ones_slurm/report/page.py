"""`ones report --html`: one file with every picture, for a screen, a phone or paper; it asks nothing of any network.

All data come in as arguments: the histories, what trainings said of themselves, and (made by the simulator, which this
room does not know) what would have been.
"""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ones_slurm.report import page_pictures as pictures
from ones_slurm.report import page_plots as plots
from ones_slurm.report import page_tables as tables
from ones_slurm.report.figures import job_figures
from ones_slurm.report.losses import losses, total_losses
from ones_slurm.report.page_data import Comparison, Course, Timeline, summary, timeline_of
from ones_slurm.report.page_templates import printable, source, templates
from ones_slurm.report.segments import JobHistory, Segment
from ones_slurm.report.shown import show_count, show_time

_TEMPLATES = templates("ones_slurm.report")


def report_page(
    jobs: Sequence[JobHistory],
    *,
    site: str,
    now_s: float,
    gpus_per_node: Mapping[str, int],
    courses: Sequence[Course] = (),
    comparison: Comparison | None = None,
    why_no_comparison: str = "",
) -> str:
    """The whole file; equal data give equal bytes. There must be a job.

    `gpus_per_node` names nodes and GPUs that the site is known to have, also those that no job held.
    `why_no_comparison` is a sentence for the place where a comparison would stand.
    """
    really = timeline_of(jobs)
    here = {**gpus_per_node, **really.gpus_by_node()}
    figures = [job_figures(job) for job in jobs]
    lost = total_losses(map(losses, jobs))
    imagined = comparison.timelines[1:] if comparison is not None else ()
    axis = plots.time_axis(really.begin_s, max(timeline.end_s for timeline in (really, *imagined)))
    # Lines are compared over the same jobs; without a simulation over all of them.
    compared = comparison.timelines if comparison is not None else (really,)
    users = {job.user for job in jobs}
    return _TEMPLATES.get_template("report.html").render(
        title=f"What happened on {site}",
        subtitle=(
            f"{show_time(math.floor(really.begin_s))} to {show_time(math.ceil(really.end_s))}: "
            f"{show_count(len(jobs), 'job')} of {show_count(len(users), 'user')} on "
            f"{show_count(len(here), 'node')} with {show_count(sum(here.values()), 'GPU')}. "
            f"Made {show_time(int(now_s))}; times are local."
        ),
        style=Markup(source(_TEMPLATES, "style.css") + source(_TEMPLATES, "report.css")),  # our own files
        tiles=tables.tiles(figures, summary(really, sum(here.values())), lost),
        jobs=jobs,
        comparison=tables.comparison(comparison) if comparison is not None else None,
        why_no_comparison=why_no_comparison,
        gantts=[
            (really.name, pictures.gantt(really, here, axis, _why_moved(jobs))),
            *((timeline.name, pictures.gantt(timeline, _with(here, timeline), axis, {})) for timeline in imagined),
        ],
        queue=pictures.queue(compared, axis),
        utilisation=pictures.utilisation(compared, sum(here.values()), axis),
        completion=pictures.completion(compared),
        losses=pictures.losses(lost),
        trainings=pictures.trainings(jobs, courses),
        trainings_note=(
            f"The jobs that were moved most often, at most {pictures.MOST_TRAININGS}: the global batch in samples, and "
            "the loss that the job itself reported."
        ),
        movers=tables.movers(jobs, figures),
        segments=tables.segments(jobs),
        table_note=tables.table_note(jobs),
        warnings=tables.warnings(jobs),
    )


def _with(nodes: Mapping[str, int], timeline: Timeline) -> dict[str, int]:
    """The nodes, and those that only this timeline has."""
    theirs = timeline.gpus_by_node()
    return {node: max(nodes.get(node, 0), theirs.get(node, 0)) for node in {**nodes, **theirs}}


def _why_moved(jobs: Sequence[JobHistory]) -> dict[tuple[str, float], str]:
    return {
        (job.job_id, float(segment.start_s)): _ending(segment)
        for job in jobs
        for segment in job.segments
        if segment.start_s is not None
    }


def _ending(segment: Segment) -> str:
    move = f"; {segment.move}: {segment.reason}" if segment.move and segment.reason else ""
    return printable(f"{move}; {'goes on' if segment.open else segment.ended_by}")
