"""How well the end of a training is predicted that does not know it itself, on histories made by simulation."""

import functools

import numpy as np
import pytest

from ones_slurm.model.cluster import Past
from ones_slurm.model.wire import Progress
from ones_slurm.policy.ones.progress import Predictor, Share, curve_of, fit_predictor
from ones_slurm.sim.early import EarlyStopped
from ones_slurm.sim.recipes import RECIPES


@functools.cache
def history(count, seed):
    """Ended jobs of the ten ONES classes, which changed their size now and then."""
    rng = np.random.default_rng(seed)
    jobs = []
    for _ in range(count):
        recipe = RECIPES[str(rng.choice(sorted(RECIPES)))]
        truth = EarlyStopped(recipe, int(rng.choice(recipe.epoch_samples)))
        reports, over = [], False
        while not over:
            if not reports or rng.random() < 0.1:
                truth.begin((int(rng.choice([1, 2, 4])),), 0)
            truth.advance(truth.until_turn_s())
            over = truth.turn()
            reports.append(truth.report())
        jobs.append(Past(user="ada", recipe=recipe.name, reports=tuple(reports), samples=reports[-1].samples))
    return tuple(jobs)


def errors(predictor, jobs):
    """Mean absolute error of the expected share, job by job."""
    every = []
    for job in jobs:
        curves = [curve for curve in map(curve_of, job.reports[:-1]) if curve is not None]
        shares = [predictor.share(curve) for curve in curves]
        told = [share.a / (share.a + share.b) for share in shares]
        every.append(np.mean([abs(one - curve.samples / job.samples) for one, curve in zip(told, curves, strict=True)]))
    return float(np.mean(every))


def test_it_halves_the_error_of_a_constant_on_jobs_that_it_has_not_seen():
    fitted = fit_predictor(history(40, 0))
    constant = Predictor(kappa=1.0, typical=fitted.typical)
    assert errors(fitted, history(20, 1)) < 0.5 * errors(constant, history(20, 1))
    assert errors(fitted, history(20, 1)) < 0.138  # what the artifact's network has on its own history


def test_its_spread_is_honest():
    fitted = fit_predictor(history(40, 0))
    rng = np.random.default_rng(2)
    covered = []
    for job in history(30, 3):
        inside = []
        for report in job.reports[:-1:2]:
            share = fitted.share(curve_of(report))
            low, high = np.quantile(rng.beta(share.a, share.b, 400), [0.05, 0.95])
            inside.append(low <= report.samples / job.samples <= high)
        covered.append(np.mean(inside))
    assert 0.8 <= np.mean(covered) <= 0.99


def test_the_same_past_gives_the_same_fit_to_the_bit():
    from ones_slurm.policy.ones import progress

    one = fit_predictor(history(8, 4))
    progress._fit.cache_clear()
    other = fit_predictor(history(8, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))


def test_with_few_ended_jobs_as_much_is_expected_to_come_as_is_done():
    few = fit_predictor(history(4, 0))
    share = few.share(curve_of(Progress(epoch=10, samples=1000, metrics={"epoch_samples": 100.0})))
    assert share.a / (share.a + share.b) == pytest.approx(0.5, abs=0.05)


def test_the_expected_rest_is_that_of_many_draws():
    share = Share(6.0, 3.0)
    drawn = np.random.default_rng(0).beta(6.0, 3.0, 200_000)
    assert share.left(100.0) == pytest.approx(100.0 * np.mean(1.0 / drawn - 1.0), rel=0.02)


def test_before_its_first_epoch_is_over_a_job_has_no_curve():
    assert curve_of(Progress(samples=99, metrics={"epoch_samples": 100.0})) is None
    assert curve_of(Progress(samples=1000)) is None
