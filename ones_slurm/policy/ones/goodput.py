"""Goodput of a job at every size: samples a second, each weighted by what it teaches at that batch size.

A larger batch teaches less per sample; how much less follows from the gradient noise scale (McCandlish et al. 2018).
"""

import functools

import numpy as np
from numpy.typing import NDArray

from ones_slurm.policy.ones.facts import Facts, Limits
from ones_slurm.policy.ones.throughput import Floats, SpeedModel

Ints = NDArray[np.int64]
Sizes = tuple[tuple[int, ...], tuple[int, ...]]

# Global batches that are weighed at each size, evenly in their logarithm (ours: steps of at most a third).
BATCHES = 16
# A size that is not at least 1 % better than a smaller one is dropped: it would cost GPUs for nothing.
MIN_GAIN = 1.01
# Nothing is predicted beyond four times the largest size measured, and a first size is at most one node: smaller steps
# would leave a job on a size whose next larger one is hardly faster, though the one after that clearly is.
MAX_RAMP = 4
# A job that was never measured is taken to speed up like n^0.8 within a node, and to need a minute on one GPU, so that
# it goes first and is measured soon.
UNKNOWN_EXPONENT, UNKNOWN_S = 0.8, 60.0


def learning(batch: Floats | float, base: float, noise: float) -> Floats | float:
    """What a sample teaches at that batch, against one of the base batch: 1 at the base, less above it."""
    return (noise + 1.0) / (noise + batch / base)


@functools.lru_cache(maxsize=16384)
def batch_ladder(model: SpeedModel, limits: Limits, sizes: Sizes) -> tuple[Floats, Floats]:
    """(sizes, batches) global batches in samples, and samples a second at each; 0 where a size has no batch at all."""
    gpus, nodes = np.array(sizes[0], float)[:, None], np.array(sizes[1], float)[:, None]
    low = np.maximum(limits.base, limits.min_local * gpus)
    largest = limits.largest if limits.accumulates else np.minimum(limits.largest, limits.max_local * gpus)
    span = np.maximum(largest / low, 1.0)
    batch = low * span ** (np.arange(BATCHES) / (BATCHES - 1.0))
    share = batch / gpus
    passes = np.ceil(share / limits.max_local - 1e-9)
    passes = np.where((gpus < 2) & (batch > limits.base), np.maximum(passes, 2.0), np.maximum(passes, 1.0))
    step_s = model.step_s(gpus, nodes, share / passes, passes - 1.0)
    fits = (low <= limits.largest * (1.0 + 1e-9)) & (gpus >= 1) & (share >= 1.0)
    return batch, np.where(fits, batch / step_s, 0.0)


@functools.lru_cache(maxsize=16384)
def unknown_curve(sizes: Sizes) -> Floats:
    """The goodput of a job that was never measured, in its work on one GPU a second."""
    return np.array(sizes[0], float) ** UNKNOWN_EXPONENT


def known_curve(facts: Facts, model: SpeedModel, sizes: Sizes) -> tuple[Floats, Floats]:
    """(goodput, batch) of every size: samples worth one of the base batch each, a second."""
    batch, rate = batch_ladder(model, facts.limits, sizes)
    goodput = rate * learning(batch, facts.limits.base, facts.noise)
    best = goodput.argmax(axis=1)
    every = np.arange(len(best))
    return goodput[every, best], batch[every, best]


def goodput_now(facts: Facts, model: SpeedModel, size: tuple[int, int], batch: float) -> float:
    """The goodput of a size, (GPUs, nodes), with any batch: between two of those that are weighed a straight line."""
    ladder, rate = batch_ladder(model, facts.limits, ((size[0],), (size[1],)))
    return float(np.interp(batch, ladder[0], rate[0] * learning(ladder[0], facts.limits.base, facts.noise)))


def useful(goodput: Floats) -> NDArray[np.bool_]:
    """(jobs, sizes) sizes, in rising order, that beat every smaller one by `MIN_GAIN`."""
    before = np.maximum.accumulate(goodput, axis=-1)
    smaller = np.concatenate([np.zeros((*goodput.shape[:-1], 1)), before[..., :-1]], axis=-1)
    return (goodput > 0.0) & (goodput >= smaller * MIN_GAIN)
