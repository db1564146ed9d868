"""The goodput model of Pollux (Qiao et al., OSDI 2021, section 3): learnt samples a second, by GPUs and batch size.

A step takes (compute^g + sync^g)^(1/g): compute = a + b · local batch, sync = c + d · (GPUs - 2), with other c and d
inside a node and between nodes; g says how far the two overlap. A step at batch B is worth
(var + sqr) / (var · B0/B + sqr) steps at B0, with the gradient's variance and squared norm.

The fit is ours: least squares of each part for itself and the best of seven exponents, a 25th of the cost of fitting
all seven parameters at once, and no worse in what it leads to.
"""

import functools
import math
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ones_slurm.model.cluster import JobView, Speed

Floats = NDArray[np.float64]

OVERLAPS = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0, 10.0)
# An untried exchange between nodes is taken to be this much slower than the one inside a node (as Pollux does).
BETWEEN_NODES = 1.1
BATCHES_TRIED = 50


class Limits(NamedTuple):
    """The batch sizes that a job allows: initial and largest global one, smallest and largest on one GPU."""

    base: int
    largest: int
    min_local: int
    max_local: int


class Model(msgspec.Struct, frozen=True):
    """Seconds of compute (`base_s + sample_s` · local batch) and of exchange (constant, and slope per GPU beyond 2)."""

    base_s: float
    sample_s: float
    inside: tuple[float, float]
    between: tuple[float, float]
    overlap: float

    def step_s(self, spans_nodes: NDArray[np.bool_], gpus: Floats, local: Floats) -> tuple[Floats, Floats]:
        """(seconds of compute, seconds of a whole step); the arguments broadcast."""
        compute = self.base_s + self.sample_s * local
        constant = np.where(spans_nodes, self.between[0], self.inside[0])
        slope = np.where(spans_nodes, self.between[1], self.inside[1])
        sync = np.where(gpus > 1, constant + slope * (gpus - 2), 0.0)
        return compute, (compute**self.overlap + sync**self.overlap) ** (1 / self.overlap)


class Table(NamedTuple):
    """Best goodput, and the batch that gives it, by [spans nodes, GPUs]; 0 GPUs are worth nothing."""

    goodput: Floats  # (2, gpus + 1)
    batch: NDArray[np.int64]  # (2, gpus + 1)


def limits_of(job: JobView) -> Limits | None:
    """The batch sizes of a job that says them and has measured something; None for any other."""
    if job.progress is None or not job.speeds or not job.progress.base_batch:
        return None
    said = job.progress.metrics
    if not {"grad_sqr", "grad_var", "min_local_batch", "max_local_batch", "max_batch"} <= said.keys():
        return None
    return Limits(
        job.progress.base_batch,
        int(said["max_batch"]),
        int(said["min_local_batch"]),
        int(said["max_local_batch"]),
    )


def table_of(job: JobView, limits: Limits, gpus: int) -> Table:
    """The job's goodput up to so many GPUs, from its own measurements and its present gradient."""
    assert job.progress is not None
    said = job.progress.metrics
    fixed = job.wish.batch.low if job.wish and job.wish.batch and job.wish.batch.low == job.wish.batch.high else 0
    return _table(fit(job.speeds), limits, (said["grad_sqr"], said["grad_var"]), gpus, fixed)


def plain_table_of(job: JobView, gpus: int) -> Table | None:
    """For a job that says nothing of its gradients: samples a second, at its base batch on each GPU.

    None for one that has measured nothing, or says no base batch.
    """
    if job.progress is None or not job.speeds or not job.progress.base_batch:
        return None
    base = job.progress.base_batch
    largest = max(job.wish.batch.high if job.wish and job.wish.batch else base, base)
    counts = np.arange(1, gpus + 1)
    local = np.maximum(np.minimum(base * counts, largest) // counts, 1)
    model = fit(job.speeds)
    goodput, chosen = np.zeros((2, gpus + 1)), np.zeros((2, gpus + 1), np.int64)
    for spans in (0, 1):
        _, step = model.step_s(np.array(bool(spans)), counts.astype(float), local.astype(float))
        goodput[spans, 1:], chosen[spans, 1:] = local * counts / step, local * counts
    return Table(goodput, chosen)


@functools.lru_cache(maxsize=4096)
def fit(speeds: tuple[Speed, ...]) -> Model:
    """The model of a job's measurements, at least one."""
    local = np.array([speed.local_batch for speed in speeds], float)
    gpus = np.array([speed.gpus for speed in speeds], float)
    spans = np.array([speed.nodes > 1 for speed in speeds])
    step = np.array([speed.step_s for speed in speeds])
    compute = np.maximum(step - np.array([speed.sync_s for speed in speeds]), 1e-9)
    base_s, sample_s = _line(local, compute, 1 / compute)
    best: tuple[float, Model] | None = None
    for overlap in OVERLAPS:
        modelled = np.minimum(base_s + sample_s * local, step)
        sync = np.maximum(step**overlap - modelled**overlap, 0.0) ** (1 / overlap)
        inside = _exchange(gpus, sync, step, (gpus > 1) & ~spans)
        between = _exchange(gpus, sync, step, spans)
        inside, between = _known(inside, between)
        model = Model(base_s, sample_s, inside, between, overlap)
        error = float(np.mean((np.log(model.step_s(spans, gpus, local)[1]) - np.log(step)) ** 2))
        if best is None or error < best[0] - 1e-12:
            best = (error, model)
    assert best is not None
    return best[1]


@functools.lru_cache(maxsize=4096)
def _table(model: Model, limits: Limits, gradient: tuple[float, float], gpus: int, fixed: int) -> Table:
    sqr, var = gradient
    counts = np.arange(1, gpus + 1)[:, None]  # (G, 1)
    least = np.maximum(limits.base, limits.min_local * counts)
    if fixed:
        wanted = np.full((gpus, 1), float(fixed))
    else:
        ladder = np.linspace(0.0, 1.0, BATCHES_TRIED)[None, :]
        wanted = least * (np.maximum(limits.largest / least, 1.0)) ** ladder  # (G, B)
    local = wanted / counts
    steps = np.ceil(local / limits.max_local - 1e-8) - 1
    steps = np.where((counts == 1) & (wanted > limits.base + 1e-8), np.maximum(steps, 1), steps)
    local = np.ceil(local / (steps + 1) - 1e-8)
    batch = counts * local * (steps + 1)
    gain = (var + sqr) / (var * limits.base / batch + sqr)
    sound = (local >= limits.min_local) & (local <= limits.max_local) & (batch <= max(limits.largest, fixed) + counts)
    goodput, chosen = np.zeros((2, gpus + 1)), np.zeros((2, gpus + 1), np.int64)
    for spans in (0, 1):
        compute, step = model.step_s(np.array(bool(spans)), counts.astype(float), local)
        worth = np.where(sound, gain / (step + steps * compute), 0.0)
        best = np.argmax(worth, axis=1)[:, None]
        goodput[spans, 1:] = np.take_along_axis(worth, best, 1)[:, 0]
        chosen[spans, 1:] = np.minimum(np.take_along_axis(batch, best, 1)[:, 0], max(limits.largest, fixed))
    return Table(goodput, chosen)


def _line(at: Floats, value: Floats, weight: Floats) -> tuple[float, float]:
    """(constant, slope), neither negative, by weighted least squares; through the origin when there is one point."""
    if np.ptp(at) == 0:
        return 0.0, float(np.mean(value / at))
    total = np.sum(weight**2)
    mean_at, mean = np.sum(weight**2 * at) / total, np.sum(weight**2 * value) / total
    slope = np.sum(weight**2 * (at - mean_at) * (value - mean)) / np.sum(weight**2 * (at - mean_at) ** 2)
    constant = mean - slope * mean_at
    if slope < 0:
        return float(mean), 0.0
    if constant < 0:
        return 0.0, float(np.sum(weight**2 * at * value) / np.sum(weight**2 * at**2))
    return float(constant), float(slope)


def _exchange(gpus: Floats, sync: Floats, step: Floats, which: NDArray[np.bool_]) -> tuple[float, float] | None:
    if not which.any():
        return None
    constant, slope = _line(gpus[which] - 2, sync[which], 1 / step[which]) if np.ptp(gpus[which]) else (math.nan, 0.0)
    return (float(np.mean(sync[which])), 0.0) if math.isnan(constant) else (constant, slope)


def _known(
    inside: tuple[float, float] | None, between: tuple[float, float] | None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """What was not tried is taken from what was; nothing tried at all counts as free, so that it will be tried."""
    if inside is None and between is None:
        return (0.0, 0.0), (0.0, 0.0)
    if between is None:
        assert inside is not None
        return inside, (inside[0] * BETWEEN_NODES, inside[1] * BETWEEN_NODES)
    if inside is None:
        return (between[0] / BETWEEN_NODES, between[1] / BETWEEN_NODES), between
    return inside, between
