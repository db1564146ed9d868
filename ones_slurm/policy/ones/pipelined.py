"""Goodput of a pipeline job: its size is a number of replicas, its step takes what the searched schedule takes.

The job itself searches, because it alone can read its placement and measure its blocks; the table of seconds by number
of micro-batches comes with its word (`model.wire.Pipeline`), and what it measured since corrects the table.
"""

import math
import statistics

import numpy as np

from ones_slurm.model.wire import Pipeline
from ones_slurm.policy.ones.facts import MAX_STEP_S, MIN_STEP_S, Facts
from ones_slurm.policy.ones.goodput import BATCHES, Sizes, learning
from ones_slurm.policy.ones.throughput import Floats

# A table is believed to be so many times too fast or too slow at most (ours: beyond, it is of another machine).
MOST_OFF = 100.0


def pipeline_curve(facts: Facts, pipeline: Pipeline, sizes: Sizes) -> tuple[Floats, Floats]:
    """(goodput, batch) of every size; no goodput where the GPUs are no whole replicas or no batch fits."""
    goodput, batches = np.zeros(len(sizes[0])), np.full(len(sizes[0]), facts.limits.base)
    scale, exchange_s = _corrections(facts, pipeline)
    for at, gpus in enumerate(sizes[0]):
        replicas, rest = divmod(gpus, pipeline.devices)
        if rest or not replicas:
            continue
        samples = replicas * pipeline.micro_batch
        counts = _counts(math.ceil(facts.limits.base / samples), int(facts.limits.largest // samples))
        if not counts.size:
            continue
        batch = counts * samples
        step_s = scale * steps_s(pipeline, counts) + (exchange_s if replicas > 1 else 0.0)
        value = batch / step_s * learning(batch, facts.limits.base, facts.noise)
        best = int(np.argmax(value))
        goodput[at], batches[at] = value[best], batch[best]
    return goodput, batches


def pipeline_now(facts: Facts, pipeline: Pipeline, gpus: int, batch: int) -> float:
    """The goodput of the size and batch in force; 0 where there is none."""
    replicas = gpus // pipeline.devices
    if not replicas or not batch:
        return 0.0
    scale, exchange_s = _corrections(facts, pipeline)
    count = np.array([max(batch / (replicas * pipeline.micro_batch), 1.0)])
    step_s = float((scale * steps_s(pipeline, count))[0]) + (exchange_s if replicas > 1 else 0.0)
    return batch / step_s * float(learning(batch, facts.limits.base, facts.noise))


def steps_s(pipeline: Pipeline, counts: Floats) -> Floats:
    """Seconds of a step with so many micro-batches: as searched, in a straight line between and beyond that."""
    known = {count: s for count, s in pipeline.steps if count > 0 and MIN_STEP_S <= s <= MAX_STEP_S}
    if not known:
        return np.full(len(counts), MAX_STEP_S)
    x = np.array(sorted(known), float)
    y = np.maximum.accumulate(np.array([known[int(count)] for count in x]))
    if len(x) == 1:
        return np.asarray(y[0] * counts / x[0])
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    beyond = np.maximum(counts - x[-1], 0.0) * slope
    return np.asarray(np.interp(counts, x, y) + beyond)


def _counts(least: int, most: int) -> Floats:
    """Numbers of micro-batches to weigh, evenly in their logarithm."""
    if most < max(least, 1):
        return np.array([])
    return np.unique(np.round(np.geomspace(max(least, 1), most, BATCHES)))


def _corrections(facts: Facts, pipeline: Pipeline) -> tuple[float, float]:
    """(how much slower it is than searched, seconds that several replicas add): from what was measured so far."""
    runs = [
        (speed.gpus // pipeline.devices, speed.step_s, float(steps_s(pipeline, np.array([count]))[0]))
        for speed in facts.speeds
        if speed.gpus % pipeline.devices == 0
        and (count := float(max(round(speed.local_batch * pipeline.devices / pipeline.micro_batch), 1)))
    ]
    if not runs:
        return 1.0, 0.0
    fewest = min(replicas for replicas, _, _ in runs)
    scale = statistics.median(step_s / searched_s for replicas, step_s, searched_s in runs if replicas == fewest)
    scale = min(max(scale, 1.0 / MOST_OFF), MOST_OFF)
    more = [step_s - scale * searched_s for replicas, step_s, searched_s in runs if replicas > 1]
    return scale, max(statistics.median(more), 0.0) if more else 0.0
