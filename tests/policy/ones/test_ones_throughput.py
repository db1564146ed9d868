"""Speeds at sizes that were never tried."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.model.cluster import Speed
from ones_slurm.policy.ones.facts import Limits
from ones_slurm.policy.ones.goodput import batch_ladder, learning, useful
from ones_slurm.policy.ones.throughput import SpeedModel, fit_speeds

TRUTH = SpeedModel(0.03, 0.002, 2.0, (0.02, 0.001), (0.06, 0.0005), 64, 0.0)


def measured(gpus, local, model=TRUTH):
    nodes = -(-gpus // 4)
    step_s = step(model, gpus, local)
    return Speed(nodes, gpus, local, step_s, max(step_s - model.constant - model.per_sample * local, 0.0))


def step(model, gpus, local):
    return float(model.step_s(*(np.array([float(x)]) for x in (gpus, -(-gpus // 4), local)))[0])


def test_three_sizes_are_enough_to_know_all_others_within_a_twentieth():
    fitted = fit_speeds(tuple(measured(gpus, local) for gpus in (4, 8, 16) for local in (16, 64)))
    for gpus in (1, 2, 12, 24, 32, 64):
        assert step(fitted, gpus, 32) == pytest.approx(step(TRUTH, gpus, 32), rel=0.05)


def test_a_size_that_was_tried_is_known_best():
    fitted = fit_speeds((measured(4, 32),))
    assert step(fitted, 4, 32) == pytest.approx(step(TRUTH, 4, 32), rel=0.01)
    assert fitted.error_at(4) < fitted.error_at(16)


@given(
    st.lists(
        st.builds(
            lambda gpus, local, compute, sync: Speed(-(-gpus // 4), gpus, local, compute + sync, sync * (gpus > 1)),
            gpus=st.integers(1, 64),
            local=st.integers(1, 1000),
            compute=st.floats(1e-4, 10.0),
            sync=st.floats(0.0, 10.0),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_size_is_ever_predicted_to_do_better_than_linear(speeds):
    fitted = fit_speeds(tuple(speeds))
    within = np.array([step(fitted, gpus, 32) for gpus in (1, 2, 3, 4)])
    between = np.array([step(fitted, gpus, 32) for gpus in (8, 16, 32, 64)])
    assert np.isfinite([*within, *between]).all()
    assert (np.diff(within) >= -1e-9 * within[1:]).all()
    assert (np.diff(between) >= -1e-9 * between[1:]).all()
    assert between.min() >= within[0] * (1.0 - 1e-9)


def test_a_sample_teaches_less_in_a_larger_batch_and_the_less_the_quieter_gradients_are():
    assert learning(64.0, 64.0, 10.0) == 1.0
    assert learning(640.0, 64.0, 10.0) == pytest.approx(0.55)
    assert learning(640.0, 64.0, 1000.0) > 0.98


def test_who_does_not_say_what_fits_on_a_gpu_never_gets_more_on_one_than_it_began_with():
    limits = Limits(base=64.0, largest=4096.0, min_local=1.0, max_local=32.0, accumulates=False)
    batch, _ = batch_ladder(fit_speeds((measured(2, 32),)), limits, ((2, 4, 8), (1, 1, 2)))
    assert (batch.max(axis=1) <= [64.0, 128.0, 256.0]).all()


def test_a_size_that_is_no_better_than_a_smaller_one_is_dropped():
    assert useful(np.array([[1.0, 1.9, 1.85, 3.0, 3.02]])).tolist() == [[True, True, False, True, False]]
