"""The pictures of the report's page, each drawn from the histories by `page_plots.py`."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from ones_slurm.report import page_plots as plots
from ones_slurm.report.columns import JOB_COLUMNS
from ones_slurm.report.losses import CAUSES, Losses
from ones_slurm.report.page_data import Course, Held, Timeline, TimelineJob, lanes
from ones_slurm.report.page_templates import printable
from ones_slurm.report.segments import JobHistory
from ones_slurm.report.shown import show_count, show_hours, show_time

# Ours: a page with more pictures is not read.
MOST_TRAININGS = 12


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
    size = f"{show_count(held.total_gpus, 'GPU')} on {show_count(len(held.gpus), 'node')}"
    return printable(f"job {job.job_id}, {job.label}: {size}{batch}, {times}")


def queue(timelines: Sequence[Timeline], x: plots.Axis) -> Markup:
    """How many jobs waited, over time."""
    lines = _lines_of(timelines, [timeline.queue_length() for timeline in timelines], x)
    most = max((value or 0.0 for line in lines for _, value in line.points), default=0.0)
    return plots.lines_picture(
        lines, x, plots.number_axis(most, "jobs", whole=True), says="jobs that wait over time", height_px=150
    )


def utilisation(timelines: Sequence[Timeline], gpus: int, x: plots.Axis) -> Markup:
    """How many GPUs were held, over time."""
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


def completion(timelines: Sequence[Timeline]) -> Markup:
    """The share of the jobs that were over within a time."""
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


def losses(lost: Losses) -> dict[str, Any]:
    """GPU-hours lost by cause, with what each cause means."""
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


def trainings(jobs: Sequence[JobHistory], courses: Sequence[Course]) -> list[dict[str, Any]]:
    """Batch and loss over time, of the jobs that were moved most often."""
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
