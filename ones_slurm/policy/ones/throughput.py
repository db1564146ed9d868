"""How fast a training runs on GPUs that it never had: compute time plus exchange of gradients, partly overlapped.

    step^γ = (a + b·local batch)^γ + sync(GPUs, nodes)^γ,   sync = constant + slope·(GPUs − 2), within a node or between

and between nodes times what is known of the site's network (see `network`), where anything is.
The form is that of Qiao et al., "Pollux", OSDI 2021, section 3.2; the fit is ours: least squares in closed form for
each of seven exponents, a 25th of the cost of a seven-parameter search and no worse. All slopes and constants are at
least zero, so at an equal local batch more GPUs are never predicted to do more each: nothing beyond linear.
"""

import functools
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ones_slurm.model.cluster import Speed

Floats = NDArray[np.float64]

GAMMAS = np.array([1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0])
# Between nodes where only one node was tried, and the other way round: Pollux's own guess.
REMOTE_FACTOR = 1.1
# With one local batch tried: half of the time is constant, so that a half as large one takes three quarters (as
# Pollux's own fit assumes). The weight is ours: a fifth of a measurement, which keeps two nearby ones from promising
# too much.
HALF_BATCH_TIME, PRIOR_WEIGHT = 0.75, 0.2
# Relative error of a prediction per doubling beyond what was tried (ours, the order of what the profiles show).
ERROR_PER_DOUBLING = 0.1
# What the site's network says of the exponent counts as much as a misfit of so much for each factor of e (ours).
GAMMA_WEIGHT = 0.02
# A slope over nodes beside the network's own counts in full only beyond so many sizes (ours).
SLOPE_SIZES = 3.0


class Network(msgspec.Struct, frozen=True):
    """What all jobs of a site share: `factors` is how much slower the exchange is, by the logarithm of the `nodes`.

    `crossing` is how much slower it is between nodes than within one; both are logarithms. `gamma` is the usual
    overlap. `paces` is how fast each type of GPU is, against the average one; all others count as that.
    """

    nodes: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    crossing: float | None = None
    gamma: float = 0.0
    paces: tuple[tuple[str, float], ...] = ()

    def pace(self, gpu_type: str) -> float:
        """The speed of that type of GPU."""
        return dict(self.paces).get(gpu_type, 1.0)

    def slower(self, nodes: Floats) -> Floats:
        """The factor on exchange times over so many nodes."""
        if not self.nodes:
            return np.ones_like(nodes)
        factor: Floats = np.exp(np.interp(np.log(np.maximum(nodes, 1.0)), self.nodes, self.factors))
        return factor


NO_NETWORK = Network()


class SpeedModel(msgspec.Struct, frozen=True):
    """Fitted times in seconds. `most_gpus` is the largest size behind it, `error` the relative misfit (rms)."""

    constant: float
    per_sample: float
    gamma: float
    local: tuple[float, float]
    remote: tuple[float, float]
    most_gpus: int
    error: float
    network: Network = NO_NETWORK

    def sync_s(self, gpus: Floats, nodes: Floats) -> Floats:
        """Seconds of gradient exchange that would be seen if nothing overlapped."""
        beyond = np.maximum(gpus - 2.0, 0.0)
        within = self.local[0] + self.local[1] * beyond
        between = (self.remote[0] + self.remote[1] * beyond) * self.network.slower(nodes)
        return np.where(gpus < 2, 0.0, np.where(nodes < 2, within, between))

    def step_s(self, gpus: Floats, nodes: Floats, local_batch: Floats, accumulation: Floats | float = 0.0) -> Floats:
        """Seconds of an optimiser step with so many further passes before the exchange."""
        compute = self.constant + self.per_sample * local_batch
        sync = self.sync_s(gpus, nodes)
        longer = np.maximum(compute, sync)
        overlapped = longer * ((compute / longer) ** self.gamma + (sync / longer) ** self.gamma) ** (1.0 / self.gamma)
        return overlapped + accumulation * compute

    def error_at(self, gpus: float) -> float:
        """Relative error to be expected of a prediction for that size."""
        return float(np.hypot(self.error, ERROR_PER_DOUBLING * max(np.log2(gpus / self.most_gpus), 0.0)))


@functools.lru_cache(maxsize=16384)
def fit_speeds(
    speeds: tuple[Speed, ...], prior: tuple[Speed, ...] = (), network: Network = NO_NETWORK, prior_weight: float = 0.1
) -> SpeedModel:
    """The model behind at least one measurement; `prior` holds those of earlier jobs of the kind, at less weight."""
    both = (*speeds, *prior)
    weight = np.array([1.0] * len(speeds) + [prior_weight if speeds else 1.0] * len(prior))
    nodes, gpus, local, step, sync = (
        np.array([getattr(speed, name) for speed in both], float)
        for name in ("nodes", "gpus", "local_batch", "step_s", "sync_s")
    )
    if network.paces:  # as if all had run on the average GPU
        pace = np.array([network.pace(speed.gpu_type) for speed in both])
        step, sync = step * pace, sync * pace
    constant, per_sample = _fit_compute(local, step - sync, weight)
    compute = constant + per_sample * local
    step = np.maximum(step, compute * (1.0 + 1e-9))
    # (gammas, measurements): what the exchange would have taken had nothing overlapped
    hidden = (step[None, :] ** GAMMAS[:, None] - compute[None, :] ** GAMMAS[:, None]) ** (1.0 / GAMMAS[:, None])
    within, between = (nodes == 1) & (gpus > 1), nodes > 1
    slower = network.slower(nodes)
    inner = _fit_sync(gpus[within], hidden[:, within], weight[within])
    outer = _fit_sync(gpus[between], (hidden / slower)[:, between], weight[between], flat=bool(network.nodes))
    if not within.any():
        inner = _crossed(outer, gpus[between], network, -1.0)
    elif not between.any():
        outer = _crossed(inner, gpus[within], network, 1.0)
    beyond = np.maximum(gpus - 2.0, 0.0)
    local_s, remote_s = (line[:, :1] + line[:, 1:] * beyond for line in (inner, outer))
    chosen = np.where(gpus > 1, np.where(nodes > 1, remote_s * slower, local_s), 0.0)
    modelled = (compute[None, :] ** GAMMAS[:, None] + chosen ** GAMMAS[:, None]) ** (1.0 / GAMMAS[:, None])
    misfit = np.sqrt(((modelled / step - 1.0) ** 2 * weight).sum(axis=1) / weight.sum())
    # equally good: the usual one of the site, or else the one that promises the least
    usual = GAMMA_WEIGHT * np.abs(np.log(GAMMAS / network.gamma)) if network.gamma else 1e-4 * np.arange(len(GAMMAS))
    best = int(np.argmin(misfit + usual))
    return SpeedModel(
        constant=constant,
        per_sample=per_sample,
        gamma=float(GAMMAS[best]),
        local=(float(inner[best, 0]), float(inner[best, 1])),
        remote=(float(outer[best, 0]), float(outer[best, 1])),
        most_gpus=int(gpus.max()),
        error=float(misfit[best]),
        network=network,
    )


def merged(speeds: Sequence[Speed]) -> tuple[Speed, ...]:
    """The last measurement of each shape and local batch, in a fixed order."""
    last = {(speed.nodes, speed.gpus, speed.local_batch): speed for speed in speeds}
    return tuple(last[key] for key in sorted(last))


def _fit_compute(local: Floats, seconds: Floats, weight: Floats) -> tuple[float, float]:
    """Relative least squares of a + b·local with a, b ≥ 0, and a weak prior on how time falls with the batch."""
    at = int(np.argmax(weight * local))
    local = np.append(local, local[at] / 2.0)
    seconds = np.append(seconds, seconds[at] * HALF_BATCH_TIME)
    weight = np.append(weight, PRIOR_WEIGHT) / seconds**2
    constant, slope = _line(local, seconds, weight)
    return float(constant), float(slope)


def _fit_sync(gpus: Floats, hidden: Floats, weight: Floats, *, flat: bool = False) -> Floats:
    """(gammas, 2): constant and slope over (GPUs − 2), both at least zero; `flat` draws few sizes towards no slope."""
    if not gpus.size:
        return np.zeros((len(GAMMAS), 2))
    weight = weight / np.maximum(hidden, 1e-9) ** 2
    constant, slope = _line(np.maximum(gpus - 2.0, 0.0), hidden, weight)
    if flat:
        more = len(np.unique(gpus)) - 1.0
        share = more / (more + SLOPE_SIZES)
        level = (weight * hidden).sum(axis=1) / weight.sum(axis=1)
        constant, slope = share * constant + (1.0 - share) * level, share * slope
    return np.stack([constant, slope], axis=1)


def _crossed(line: Floats, gpus: Floats, network: Network, way: float) -> Floats:
    """The exchange on the other side, within (-1) or between nodes (+1), where only one side was tried."""
    if network.crossing is None or not gpus.size:
        guessed: Floats = line * REMOTE_FACTOR**way
        return guessed
    level = (line[:, 0] + line[:, 1] * max(float(gpus.max()) - 2.0, 0.0)) * np.exp(way * network.crossing)
    return np.stack([level, np.zeros_like(level)], axis=1)


def _line(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Weighted least squares of c + s·x along the last axis; s, then c, held at zero where it would be negative."""
    total = weight.sum(axis=-1)
    mean_x, mean_y = (weight * x).sum(axis=-1) / total, (weight * y).sum(axis=-1) / total
    spread = (weight * x * x).sum(axis=-1) / total - mean_x**2
    together = (weight * x * y).sum(axis=-1) / total - mean_x * mean_y
    slope = np.where(spread > 1e-12 * (1.0 + mean_x**2), together / np.maximum(spread, 1e-300), 0.0)
    slope = np.maximum(slope, 0.0)
    constant = mean_y - slope * mean_x
    through_zero = (weight * x * y).sum(axis=-1) / np.maximum((weight * x * x).sum(axis=-1), 1e-300)
    return np.maximum(constant, 0.0), np.where(constant < 0.0, through_zero, slope)
