"""`ones report --html`: one file with every picture, for a screen, a phone or paper; it asks nothing of any network.

All data come in as arguments: the histories, what trainings said of themselves, and (made by the simulator, which this
room does not know) what would have been.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from markupsafe import Markup

from ones_slurm.report import page_plots as plots
from ones_slurm.report.columns import COLUMNS, JOB_COLUMNS, Column, Line
from ones_slurm.report.figures import JobFigures, gpu_hours, job_figures, totals
from ones_slurm.report.losses import CAUSES, Losses, losses, total_losses
from ones_slurm.report.page_data import (
    Comparison,
    Course,
    Held,
    Summary,
    Timeline,
    TimelineJob,
    lanes,
    summary,
    timeline_of,
)
from ones_slurm.report.page_templates import printable, source, templates
from ones_slurm.report.segments import JobHistory, Segment
from ones_slurm.report.shown import show_duration, show_hours, show_share, show_time

# Ours: a page with more lines or pictures is not read; those that matter most come first and the rest is counted.
MOST_SEGMENTS = 300
MOST_MOVERS = 15
MOST_TRAININGS = 12
MOST_WARNINGS = 50

_TEMPLATES = templates("ones_slurm.report")


class _Title(msgspec.Struct, frozen=True, kw_only=True):
    """A heading of a table that has no column of the report behind it."""

    title: str
    what: str
    key: str = ""
    right: bool = True


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
            f"{_count(len(jobs), 'job')} of {_count(len(users), 'user')} on {_count(len(here), 'node')} with "
            f"{_count(sum(here.values()), 'GPU')}. Made {show_time(int(now_s))}; times are local."
        ),
        style=Markup(source(_TEMPLATES, "style.css") + source(_TEMPLATES, "report.css")),  # our own files
        tiles=_tiles(figures, summary(really, sum(here.values())), lost),
        jobs=jobs,
        comparison=_comparison(comparison) if comparison is not None else None,
        why_no_comparison=why_no_comparison,
        gantts=[
            (really.name, gantt(really, here, axis, _why_moved(jobs))),
            *((timeline.name, gantt(timeline, _with(here, timeline), axis, {})) for timeline in imagined),
        ],
        queue=_queue(compared, axis),
        utilisation=_utilisation(compared, sum(here.values()), axis),
        completion=_completion(compared),
        losses=_losses(lost),
        trainings=_trainings(jobs, courses),
        trainings_note=(
            f"The jobs that were moved most often, at most {MOST_TRAININGS}: the global batch in samples, and the loss "
            "that the job itself reported."
        ),
        movers=_movers(jobs, figures),
        segments=_segments(jobs),
        table_note=_table_note(jobs),
        warnings=_warnings(jobs),
    )


def gantt(timeline: Timeline, nodes: Mapping[str, int], x: plots.Axis, why: Mapping[tuple[str, float], str]) -> Markup:
    """A row for each GPU of `nodes`; `why` tells by (job, begin) what a box says in its tooltip beyond the numbers."""
    base = dict(zip(nodes, accumulate(nodes.values(), initial=0), strict=False))
    rows = sum(nodes.values())
    each = rows <= plots.MOST_LABELS
    labels = [
        (base[node] + (gpu + 0.5 if each else gpus / 2), f"{node}:{gpu}" if each and gpus > 1 else node)
        for node, gpus in nodes.items()
        for gpu in (range(gpus) if each else range(1))
    ]
    drawn = list(lanes(timeline))
    named = len(drawn) <= plots.MOST_NAMED
    boxes = [
        plots.Box(
            from_x=held.from_s,
            until_x=held.until_s,
            row=base[node] + lowest,
            rows=count,
            colour=plots.colour_of(job.job_id),
            name=job.job_id,
            says=_says(job, held) + why.get((job.job_id, held.from_s), "") if named else "",
        )
        for job, held, node, lowest, count in drawn
    ]
    return plots.boxes_picture(boxes, x, rows, labels, says=f"GPUs over time by job: {timeline.name}")


def _says(job: TimelineJob, held: Held) -> str:
    batch = f", batch {held.batch}" if held.batch else ""
    times = f"{show_time(int(held.from_s))} to {show_time(int(held.until_s))}"
    size = f"{_count(held.total_gpus, 'GPU')} on {_count(len(held.gpus), 'node')}"
    return printable(f"job {job.job_id}, {job.label}: {size}{batch}, {times}")


def _tiles(figures: Sequence[JobFigures], here: Summary, lost: Losses) -> list[tuple[str, str]]:
    total = totals(figures)
    return [
        (f"{total.jobs} / {total.finished}", "jobs / finished"),
        (show_hours(gpu_hours(total.gpu_s)), "GPU-hours held"),
        (show_share(here.utilisation), "of all GPU time was held"),
        (show_share(lost.goodput), "of the time held trained jobs"),
        (_duration(here.mean_completion_s), "mean completion time"),
        (_duration(here.mean_wait_s), "mean wait to the first start"),
        (str(total.moves), "moves"),
        (str(total.interruptions), "interruptions"),
    ]


_SUMMARY = (
    (_Title(title="", what="whose account of the same submissions", right=False), lambda row: row.name),
    (_Title(title="JOBS", what="jobs in it"), lambda row: str(row.jobs)),
    (
        _Title(title="MEAN", what="mean completion time, from submission to the end"),
        lambda row: _duration(row.mean_completion_s),
    ),
    (_Title(title="MEDIAN", what="half of the jobs took no longer"), lambda row: _duration(row.median_completion_s)),
    (_Title(title="P90", what="nine in ten took no longer"), lambda row: _duration(row.p90_completion_s)),
    (_Title(title="WAIT", what="mean time to the first start"), lambda row: _duration(row.mean_wait_s)),
    (_Title(title="MAKESPAN", what="from the first submission to the last end"), lambda row: _duration(row.makespan_s)),
    (_Title(title="GPU-HOURS", what="GPU time that jobs held"), lambda row: f"{row.gpu_s / 3600:.3f}"),
    (
        _Title(title="USED", what="share of all GPU time until the last end that was held"),
        lambda row: show_share(row.utilisation),
    ),
    (_Title(title="MOVES", what="changes of nodes, GPUs or batch"), lambda row: str(row.moves)),
)


def _comparison(told: Comparison) -> dict[str, Any]:
    return {
        "jobs": len(told.timelines[0].jobs),
        "columns": [title for title, _ in _SUMMARY],
        "rows": [[cell(summary(timeline, told.gpus)) for _, cell in _SUMMARY] for timeline in told.timelines],
        "assumptions": told.assumptions,
    }


def _with(nodes: Mapping[str, int], timeline: Timeline) -> dict[str, int]:
    """The nodes, and those that only this timeline has."""
    theirs = timeline.gpus_by_node()
    return {node: max(nodes.get(node, 0), theirs.get(node, 0)) for node in {**nodes, **theirs}}


def _queue(timelines: Sequence[Timeline], x: plots.Axis) -> Markup:
    lines = _lines_of(timelines, [timeline.queue_length() for timeline in timelines], x)
    most = max((value or 0.0 for line in lines for _, value in line.points), default=0.0)
    return plots.lines_picture(
        lines, x, plots.number_axis(most, "jobs", whole=True), says="jobs that wait over time", height_px=150
    )


def _utilisation(timelines: Sequence[Timeline], gpus: int, x: plots.Axis) -> Markup:
    lines = _lines_of(timelines, [timeline.gpus_in_use() for timeline in timelines], x)
    every = plots.Line(points=[(x.low, float(gpus)), (x.high, float(gpus))], colour=7, name="all GPUs", dashes=3)
    y = plots.number_axis(gpus, "GPUs", whole=True)
    return plots.lines_picture([*lines, every], x, y, says="GPUs held over time", height_px=170)


def _lines_of(
    timelines: Sequence[Timeline], steps: Sequence[Sequence[tuple[float, float]]], x: plots.Axis
) -> list[plots.Line]:
    """What happened as a filled line, the imagined ones dashed."""
    return [
        plots.Line(
            points=[(x.low, 0.0), *points],
            colour=number,
            name=timeline.name,
            step=True,
            dashes=number,
            filled=number == 0,
        )
        for number, (timeline, points) in enumerate(zip(timelines, steps, strict=True))
    ]


def _completion(timelines: Sequence[Timeline]) -> Markup:
    times = [
        sorted(max(job.end_s - job.submit_s, 1.0) for job in timeline.jobs if job.end_s is not None)
        for timeline in timelines
    ]
    every = [time for ordered in times for time in ordered]
    if not every:
        return Markup('<p class="note">No job is over yet.</p>')
    x = plots.duration_axis(min(every), max(every), "completion time")
    lines = []
    for number, (timeline, ordered) in enumerate(zip(timelines, times, strict=True)):
        steps = [(time, (place + 1) / len(ordered)) for place, time in enumerate(ordered)]
        points = [(x.low, 0.0), *steps, (x.high, 1.0)] if ordered else []
        lines.append(plots.Line(points=points, colour=number, name=timeline.name, step=True, dashes=number))
    y = plots.Axis(0.0, 1.0, ((0.0, "0%"), (0.25, "25%"), (0.5, "50%"), (0.75, "75%"), (1.0, "100%")), "share of jobs")
    return plots.lines_picture(lines, x, y, says="share of jobs that are over within a time")


def _losses(lost: Losses) -> dict[str, Any]:
    titles = {column.key: column for column in JOB_COLUMNS}
    bars = []
    for cause in CAUSES:
        column = titles[_key(cause)]
        gpu_s = getattr(lost, cause)
        unknown = not lost.told and cause not in ("waiting", "restarting")
        bars.append((column.title, gpu_s, "not known" if unknown else show_hours(gpu_s / 3600), column.what))
    note = f"GPU-hours. Jobs held {show_hours(lost.held / 3600)}, Slurm's clean-up after requeues included. "
    if lost.told:
        note += f"Of these {show_hours(lost.useful / 3600)} trained them; the causes but L-WAITING are the rest."
    else:
        note += "The journal of onesd knows none of these jobs, so most causes are not known."
    return {
        "note": note,
        "picture": plots.bars_picture(bars, says="GPU-hours lost by cause"),
        "causes": [(titles[_key(cause)].title, titles[_key(cause)].what) for cause in CAUSES],
    }


def _key(cause: str) -> str:
    """The column of a cause: L-LOSTWORK is llostwork for -o."""
    return "l" + cause.replace("_", "")


def _trainings(jobs: Sequence[JobHistory], courses: Sequence[Course]) -> list[dict[str, Any]]:
    by_job = {course.job_id: course for course in courses}
    told = [job for job in jobs if job.job_id in by_job or any(segment.batch for segment in job.segments)]
    told.sort(key=lambda job: (-len(job.segments), job.segments[0].submit_s, job.job_id))
    return [_training(job, by_job.get(job.job_id)) for job in told[:MOST_TRAININGS]]


def _training(job: JobHistory, course: Course | None) -> dict[str, Any]:
    held = [segment for segment in job.segments if segment.start_s is not None]
    begin_s = held[0].start_s if held and held[0].start_s is not None else job.segments[0].submit_s
    x = plots.time_axis(begin_s, job.segments[-1].end_s, ticks=4)
    colour = plots.colour_of(job.job_id)
    batches: list[tuple[float, float | None]] = []
    for segment in held:
        if segment.batch:
            batches += [(segment.start_s or 0, segment.batch), (segment.end_s, segment.batch), (segment.end_s, None)]
    sizes = [value for _, value in batches if value]
    batch = Markup("")
    if sizes:
        line = plots.Line(points=batches, colour=colour, name="batch")
        y = plots.ratio_axis(min(sizes), max(sizes), "samples in a step")
        batch = plots.lines_picture([line], x, y, says=f"batch of job {job.job_id}", height_px=90, legend=False)
    losses = [(at_s, loss) for at_s, _, loss in course.points if loss is not None] if course is not None else []
    loss = Markup("")
    if losses:
        values = [value for _, value in losses]
        y = plots.value_axis(min(values), max(values), "loss")
        line = plots.Line(points=losses, colour=colour, name="loss")
        loss = plots.lines_picture([line], x, y, says=f"loss of job {job.job_id}", height_px=110, legend=False)
    return {"title": f"Job {job.job_id}, {job.segments[0].name} of {job.user}", "batch": batch, "loss": loss}


def _movers(jobs: Sequence[JobHistory], figures: Sequence[JobFigures]) -> dict[str, Any]:
    moved = sorted(
        ((its, job) for job, its in zip(jobs, figures, strict=True) if its.moves),
        key=lambda entry: (-entry[0].moves, -entry[0].restart_gpu_s, entry[1].job_id),
    )[:MOST_MOVERS]
    titles = (
        *(column for column in COLUMNS if column.key in ("jobid", "user", "name")),
        _Title(title="MOVES", what="how often it went on with other nodes or another batch, or was requeued"),
        _Title(title="SIZES", what="nodes held, one after the other", right=False),
        *(column for column in COLUMNS if column.key in ("gpuhours", "restart")),
    )
    rows = []
    for its, job in moved:
        sizes = " → ".join(str(segment.nnodes) for segment in job.segments if segment.start_s is not None)
        first = job.segments[0]
        cells = (job.job_id, job.user, first.name, str(its.moves), sizes)
        hours = (show_hours(gpu_hours(its.gpu_s)), show_hours(gpu_hours(its.restart_gpu_s)))
        rows.append(list(zip(titles, (*cells, *hours), strict=True)))
    return {"columns": titles, "rows": rows}


def _segments(jobs: Sequence[JobHistory]) -> dict[str, Any]:
    columns = [column for column in COLUMNS if column.default and column.key not in ("submit", "account", "partition")]
    rows: list[list[tuple[Column, str]]] = []
    for job in _largest(jobs):
        if len(rows) >= MOST_SEGMENTS:
            break
        figures = job_figures(job)
        lines = (Line(job, figures, number, segment) for number, segment in enumerate(job.segments, 1))
        rows += [[(column, column.show(column.value(line))) for column in columns] for line in lines]
    return {"columns": columns, "rows": rows[:MOST_SEGMENTS]}


def _largest(jobs: Sequence[JobHistory]) -> Sequence[JobHistory]:
    """All of them in their order, or the largest in GPU-hours where they are too many for a page."""
    if sum(len(job.segments) for job in jobs) <= MOST_SEGMENTS:
        return jobs
    return sorted(jobs, key=lambda job: -sum(segment.gpu_s for segment in job.segments))


def _table_note(jobs: Sequence[JobHistory]) -> str:
    segments = sum(len(job.segments) for job in jobs)
    note = "A line is a segment: a time over which a job held the same nodes with the same batch."
    if segments > MOST_SEGMENTS:
        note += f" The first {MOST_SEGMENTS} of {segments}, the largest jobs first; `ones report` has them all."
    return note


def _warnings(jobs: Sequence[JobHistory]) -> list[str]:
    said = [f"Job {job.job_id}: {oddity.what}" for job in jobs for oddity in job.oddities]
    return said[:MOST_WARNINGS] + ([f"and {len(said) - MOST_WARNINGS} more"] if len(said) > MOST_WARNINGS else [])


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


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else show_duration(seconds)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
