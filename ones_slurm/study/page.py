"""One self-contained HTML page that compares runs: a table and three kinds of pictures, with no link to anywhere."""

import io
import math
from collections import defaultdict
from collections.abc import Sequence

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ones_slurm.sim.job import Job
from ones_slurm.study.setting import Result
from ones_slurm.study.table import COLUMNS

# More rectangles than this are drawn as an image inside the SVG, or the page would be too large to open (ours).
MOST_SHAPES = 2500
# Jobs whose batch is drawn: those that changed it most often.
BATCH_LINES = 12

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{ title }}</title>
<style>
 body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; color: #222 }
 table { border-collapse: collapse; font-variant-numeric: tabular-nums }
 th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #ddd }
 th:first-child, td:first-child { text-align: left }
 .wide { overflow-x: auto } svg { width: 100%; height: auto } h2 { margin-top: 2em } .note { color: #555 }
</style>
<h1>{{ title }}</h1>
{% for note in notes %}<p class="note">{{ note }}</p>{% endfor %}
<div class="wide"><table>
<tr>{% for column in columns %}<th title="{{ column.what }}">{{ column.name }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table></div>
<ul class="note">{% for column in columns %}<li><b>{{ column.name }}</b>: {{ column.what }}</li>{% endfor %}</ul>
{% for heading, text, picture in pictures %}
<h2>{{ heading }}</h2><p class="note">{{ text }}</p>{{ picture|safe }}
{% endfor %}
</html>
"""


def page(title: str, results: Sequence[Result], notes: Sequence[str] = ()) -> str:
    """The whole page; equal runs give equal bytes."""
    pictures = [
        (
            "Completion times",
            "Share of the jobs that are over within a time from their submission; further left is better.",
            _svg(_completion(results)),
        )
    ]
    end_s = max(job.submit_s + job.completion_s for result in results for job in result.jobs)
    for result in results:
        name = result.figures.policy
        pictures.append(
            (
                f"GPUs over time: {name}",
                "One line a GPU, nodes one above the other; each colour is a job, white is idle.",
                _svg(_gantt(result, end_s)),
            )
        )
        if any(len({span.batch for span in job.spans}) > 1 for job in result.cluster.ended):
            pictures.append(
                (
                    f"Batch size over time: {name}",
                    f"The {BATCH_LINES} jobs that changed their global batch most often.",
                    _svg(_batches(result)),
                )
            )
    environment = jinja2.Environment(autoescape=True)
    return environment.from_string(_PAGE).render(
        title=title,
        notes=notes,
        columns=COLUMNS,
        rows=[[column.cell(result.figures) for column in COLUMNS] for result in results],
        pictures=pictures,
    )


def _completion(results: Sequence[Result]) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    for result in results:
        hours = np.sort([job.completion_s for job in result.jobs]) / 3600
        axes.step(np.maximum(hours, 1e-3), np.arange(1, len(hours) + 1) / len(hours), label=result.figures.policy)
    axes.set(xscale="log", xlabel="hours", ylabel="share of jobs", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _gantt(result: Result, end_s: float) -> Figure:
    cluster = result.cluster
    base: dict[str, int] = {}
    total = 0
    for node in cluster.nodes.values():
        base[node.name] = total
        total += node.gpus
    colours = mpl.colormaps["tab20"].colors  # type: ignore[attr-defined]
    shapes, filled = [], []
    for job, name, lane, gpus, from_s, until_s in _boxes(cluster.ended):
        shapes.append(Rectangle((from_s / 3600, base[name] + lane), (until_s - from_s) / 3600, gpus))
        filled.append(colours[job % len(colours)])
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    boxes = PatchCollection(shapes, facecolors=filled, edgecolors="white", linewidths=0.1)
    boxes.set_rasterized(len(shapes) > MOST_SHAPES)
    axes.add_collection(boxes)
    axes.set(xlim=(0, end_s / 3600), ylim=(0, total), xlabel="hours", ylabel="GPUs")
    return figure


def _boxes(jobs: Sequence[Job]) -> list[tuple[int, str, int, int, float, float]]:
    """(number of the job, node, lowest GPU, GPUs, from, until); GPUs of a node are given out from below.

    Which of a node's GPUs a job has is nobody's business in the simulation, so lanes are found here: a job takes the
    lowest ones that are free, in pieces if it must.
    """
    spans = sorted(
        (span.from_s, number, name, gpus, span.until_s)
        for number, job in enumerate(sorted(jobs, key=lambda job: (job.what.submit_s, job.job_id)))
        for span in job.spans
        for name, gpus in span.allocation
    )
    busy: dict[str, dict[int, float]] = defaultdict(dict)  # node -> GPU -> until when
    boxes = []
    for from_s, number, name, gpus, until_s in spans:
        lanes: list[int] = []
        lane = 0
        while len(lanes) < gpus:
            if busy[name].get(lane, 0.0) <= from_s:
                lanes.append(lane)
            lane += 1
        for lane in lanes:
            busy[name][lane] = until_s
        start = lanes[0]
        for here, following in zip(lanes, [*lanes[1:], -1], strict=True):
            if following != here + 1:
                boxes.append((number, name, start, here + 1 - start, from_s, until_s))
                start = following
    return boxes


def _batches(result: Result) -> Figure:
    figure = Figure(figsize=(10, 3.5), layout="constrained")
    axes = figure.subplots()
    changing = sorted(result.cluster.ended, key=lambda job: (-len({span.batch for span in job.spans}), job.job_id))
    for job in changing[:BATCH_LINES]:
        times: list[float] = []
        batches: list[float] = []
        for span in job.spans:
            if times and span.from_s / 3600 > times[-1]:  # it held nothing in between
                times.append(math.nan)
                batches.append(math.nan)
            times += [span.from_s / 3600, span.until_s / 3600]
            batches += [span.batch, span.batch]
        axes.plot(times, batches, label=job.job_id, linewidth=1)
    axes.set(yscale="log", xlabel="hours", ylabel="samples in a step")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", ncols=3)
    return figure


def _svg(figure: Figure) -> str:
    """The picture as an element of the page, without a date and with the same ids each time."""
    with mpl.rc_context({"svg.hashsalt": "ones", "svg.fonttype": "path"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
