"""How much of a training is done, where nobody knows when it will end: a Beta distribution for each job.

    share done ~ Beta(κ a, κ b),   a = epochs done,   b = 1 + softplus(w · tanh(W x + c) + d)  ("epochs still to come")

The family is that of ONES (arXiv 2108.03645); features are standardised with what the fit stores, the head cannot die,
training stops early on jobs that it has not seen, and κ is chosen on them so that the spread is honest. All of it
depends on the ended jobs that it is given, and on nothing else.
"""

import functools
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ones_slurm.model.cluster import Past
from ones_slurm.model.wire import Progress
from ones_slurm.policy.ones.facts import MAX_SAMPLES, bounded
from ones_slurm.policy.ones.throughput import Floats

Bools = NDArray[np.bool_]

HIDDEN, RATE, DECAY, BATCH_ROWS = 16, 3e-3, 1e-3, 32
EPOCHS, PATIENCE = 120, 12
# Before so many jobs have ended, b is a constant: their median, or the wide prior below.
LEAST_JOBS, MOST_JOBS, MOST_ROWS = 5, 200, 2000
# Nothing is known of how long jobs are: as many epochs to come as are done, give or take a factor of ten (ours).
PRIOR_KAPPA = 0.5
KAPPAS = 2.0 ** np.arange(-3.0, 5.25, 0.25)
# κ is the largest at which so much of unseen jobs lies within 90 %-intervals, and a little more where they are few.
COVERED, NORMAL_90 = 0.9, 1.6449
LOSS_CAP = 100.0
MAX_EPOCHS = 1e5


class Curve(msgspec.Struct, frozen=True):
    """Where a job is: samples done, and the features of the fit."""

    samples: float
    epochs: float
    features: tuple[float, ...]


class Share(msgspec.Struct, frozen=True):
    """The distribution of the share that is done: Beta(a, b)."""

    a: float
    b: float

    @property
    def doubt(self) -> float:
        """Standard deviation of the logarithm of what is left over what is done: exact for this distribution."""
        return float(np.sqrt(_trigamma(np.array([self.a, self.b])).sum()))

    def left(self, done: float) -> float:
        """Expected samples to come, when `done` are: done · E[1/ρ − 1] = done · b / (a − 1).

        That exists only for a > 1 and means little just above, so it is at most twice the ratio of the means.
        """
        return done * self.b / max(self.a - 1.0, self.a / 2.0)


class Predictor(msgspec.Struct, frozen=True):
    """A fit. Without weights, `typical` epochs are to come, for whoever asks; 0 is as many as are done."""

    kappa: float = PRIOR_KAPPA
    typical: float = 0.0
    weights: tuple[Floats, ...] = ()
    mean: Floats | None = None
    scale: Floats | None = None

    def share(self, curve: Curve) -> Share:
        """The distribution for one job."""
        if not self.weights or self.mean is None or self.scale is None:
            to_come = 1.0 + (self.typical or max(curve.epochs, 1.0))
        else:
            x = (np.array([curve.features]) - self.mean) / self.scale
            to_come = float(_to_come(self.weights, np.clip(x, -4.0, 4.0))[0][0])
        return Share(self.kappa * max(curve.epochs, 0.1), self.kappa * min(to_come, MAX_EPOCHS))


def curve_of(progress: Progress) -> Curve | None:
    """The features of a report; None before the first epoch is over, or where the size of an epoch is not known.

    The same for fitting and predicting.
    """
    samples = min(float(progress.samples), MAX_SAMPLES)
    each = bounded(progress.metrics.get("epoch_samples"), 1.0, MAX_SAMPLES)
    each = each or (samples / progress.epoch if progress.epoch else 0.0)
    if not each or samples < each:
        return None
    loss = bounded(progress.loss, -LOSS_CAP, 1e30)
    first = bounded(progress.metrics.get("first_loss"), 1e-9, 1e30)
    accuracy = bounded(progress.metrics.get("accuracy"), 0.0, 1.0)
    known_loss = min(loss, LOSS_CAP) if loss is not None else 0.0
    fallen = 1.0 - known_loss / min(first, LOSS_CAP) if first is not None and loss is not None else 0.0
    epochs = min(samples / each, MAX_EPOCHS)
    base = np.log(float(progress.base_batch)) if progress.base_batch else 0.0
    features = (float(np.log(each)), float(np.log1p(epochs)), known_loss, fallen, accuracy or 0.0, float(base))
    return Curve(samples, epochs, features)


def fit_predictor(past: Sequence[Past]) -> Predictor:
    """The predictor behind ended jobs. Refitted when they have become a tenth more, which changes it little before."""
    ended = [job for job in past if job.samples > 0 and job.reports]
    count = LEAST_JOBS
    while count * 11 // 10 + 1 <= len(ended):
        count = count * 11 // 10 + 1
    if len(ended) < LEAST_JOBS:
        return Predictor()
    jobs = [_rows(job) for job in ended[:count][-MOST_JOBS:]]
    return _fit(tuple(rows for rows in jobs if rows))


Rows = tuple[tuple[float, float, tuple[float, ...]], ...]  # (epochs done, share done, features)


def _rows(job: Past) -> Rows:
    curves = [curve for curve in map(curve_of, job.reports) if curve is not None and curve.samples < job.samples]
    return tuple((curve.epochs, curve.samples / job.samples, curve.features) for curve in curves)


@functools.lru_cache(maxsize=16)
def _fit(jobs: tuple[Rows, ...]) -> Predictor:
    """Early stop on every fifth job; κ on those and another fifth, which no weight was fitted to."""
    if len(jobs) < LEAST_JOBS:
        return Predictor()
    rng = np.random.default_rng(0)
    owner = np.concatenate([np.full(len(rows), at) for at, rows in enumerate(jobs)])
    a, y = (np.array([row[at] for rows in jobs for row in rows], float) for at in (0, 1))
    x = np.array([row[2] for rows in jobs for row in rows], float)
    each = (1.0 / np.bincount(owner))[owner]  # every job counts alike, however often it reported
    if len(y) > MOST_ROWS:
        chosen = np.sort(rng.choice(len(y), MOST_ROWS, replace=False))
        owner, a, y, x, each = owner[chosen], a[chosen], y[chosen], x[chosen], each[chosen]
    held_out, aside = owner % 5 == 4, owner % 5 == 2
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    x = np.clip((x - mean) / scale, -4.0, 4.0)
    y = np.clip(y, 1e-4, 1.0 - 1e-4)
    typical = float(np.median(a / y - a))
    weights = _train(x, a, y, each, (~held_out & ~aside, held_out), typical, rng)
    b_all = _to_come(weights, x)[0]
    unseen = aside | held_out
    count = len(np.unique(owner[unseen]))
    covered = [_covered(k * a[unseen], k * b_all[unseen], y[unseen], each[unseen]) for k in KAPPAS]
    honest = np.flatnonzero(np.array(covered) >= min(COVERED * (1.0 + 0.8 / max(count, 1)), 1.0))
    return Predictor(float(KAPPAS[honest[-1] if len(honest) else 0]), typical, weights, mean, scale)


def _train(  # noqa: PLR0917  (private, and called once)
    x: Floats, a: Floats, y: Floats, each: Floats, split: tuple[Bools, Bools], typical: float, rng: np.random.Generator
) -> tuple[Floats, ...]:
    """Adam on the mean surprise; begins at the constant `typical`, and keeps what served unseen jobs best."""
    weights = [
        rng.normal(0.0, x.shape[1] ** -0.5, (x.shape[1], HIDDEN)),
        np.zeros(HIDDEN),
        rng.normal(0.0, 0.1 * HIDDEN**-0.5, HIDDEN),
        np.array([np.log(np.expm1(min(max(typical, 0.1), 500.0)))]),
    ]
    first, second = [np.zeros_like(part) for part in weights], [np.zeros_like(part) for part in weights]
    train, held_out = np.flatnonzero(split[0]), split[1]
    best, kept, step, waited = np.inf, [part.copy() for part in weights], 0, 0
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(train), max(len(train) // BATCH_ROWS, 1)):
            step += 1
            for at, slope in enumerate(_slopes(weights, x[rows], a[rows], y[rows], each[rows])):
                decayed = slope + DECAY * weights[at] if weights[at].ndim == 2 or at == 2 else slope
                first[at] = 0.9 * first[at] + 0.1 * decayed
                second[at] = 0.999 * second[at] + 0.001 * decayed**2
                change = first[at] / (1 - 0.9**step) / (np.sqrt(second[at] / (1 - 0.999**step)) + 1e-8)
                weights[at] = weights[at] - RATE * change
        now = float((each * _surprise(a, _to_come(tuple(weights), x)[0], y))[held_out].sum())
        if now < best:
            best, kept, waited = now, [part.copy() for part in weights], 0
        else:
            waited += 1
            if waited > PATIENCE:
                break
    return tuple(kept)


def _to_come(weights: Sequence[Floats], x: Floats) -> tuple[Floats, Floats, Floats]:
    """(epochs to come, hidden layer, input of the softplus)."""
    hidden = np.tanh(x @ weights[0] + weights[1])
    raw = hidden @ weights[2] + weights[3][0]
    return 1.0 + np.logaddexp(0.0, raw), hidden, raw


def _slopes(weights: Sequence[Floats], x: Floats, a: Floats, y: Floats, each: Floats) -> list[Floats]:
    """The gradient of the mean surprise in all weights."""
    b, hidden, raw = _to_come(weights, x)
    by_b = _digamma(b) - _digamma(a + b) - np.log1p(-y)
    by_raw = each / each.sum() * by_b / (1.0 + np.exp(-raw))
    by_hidden = by_raw[:, None] * weights[2] * (1.0 - hidden**2)
    return [x.T @ by_hidden, by_hidden.sum(axis=0), hidden.T @ by_raw, np.array([by_raw.sum()])]


def _surprise(a: Floats, b: Floats, y: Floats) -> Floats:
    """−log of the Beta density."""
    return _log_gamma(a) + _log_gamma(b) - _log_gamma(a + b) - (a - 1.0) * np.log(y) - (b - 1.0) * np.log1p(-y)


def _covered(a: Floats, b: Floats, y: Floats, each: Floats) -> float:
    """The share of y within the middle 90 % of Beta(a, b), whose log-odds are nearly normal."""
    spread = np.sqrt(_trigamma(a) + _trigamma(b))
    off = np.abs(np.log(y) - np.log1p(-y) - _digamma(a) + _digamma(b)) / spread
    return float((each * (off <= NORMAL_90)).sum() / each.sum())


def _log_gamma(x: Floats) -> Floats:
    """Stirling's series after raising the argument by 6 (error below 1e-9 for x > 0)."""
    shift = np.log(x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0))
    z = x + 6.0
    return (z - 0.5) * np.log(z) - z + 0.9189385332046727 + 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - shift


def _digamma(x: Floats) -> Floats:
    """The derivative of the above."""
    shift = 1 / x + 1 / (x + 1) + 1 / (x + 2) + 1 / (x + 3) + 1 / (x + 4) + 1 / (x + 5)
    z = x + 6.0
    return np.log(z) - 1 / (2 * z) - 1 / (12 * z**2) + 1 / (120 * z**4) - 1 / (252 * z**6) - shift


def _trigamma(x: Floats) -> Floats:
    """The derivative of that again."""
    shift = sum(1 / (x + more) ** 2 for more in range(6))
    z = x + 6.0
    return 1 / z + 1 / (2 * z**2) + 1 / (6 * z**3) - 1 / (30 * z**5) + shift
