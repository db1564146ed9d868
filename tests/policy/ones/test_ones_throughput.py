"""Speeds at sizes that were never tried."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ones_views import job

from ones_slurm.model.cluster import ClusterView, NodeView, Past, Speed
from ones_slurm.policy.ones.facts import Limits
from ones_slurm.policy.ones.goodput import batch_ladder, learning, useful
from ones_slurm.policy.ones.network import network_of
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.ones.throughput import NO_NETWORK, SpeedModel, fit_speeds
from ones_slurm.policy.psrpt import Psrpt

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


def steps(model, gpus, local, nodes=None):
    at = (float(gpus), float(nodes or -(-gpus // 4)), float(local))
    return float(model.step_s(*(np.array([each]) for each in at))[0])


def ended(level, *sizes, pace=1.0, gpu_type="", recipe=""):
    """A job whose exchange takes `level` seconds within a node, six times that between nodes, and twice on two."""
    speeds = []
    for gpus in sizes:
        nodes = -(-gpus // 4)
        sync = level * (0 if gpus == 1 else 1 if nodes == 1 else 12 if nodes == 2 else 6)
        step_s = (0.5 + sync) / pace
        speeds.append(Speed(nodes, gpus, 32, step_s, sync / pace, gpu_type))
    return Past(user="ada", recipe=recipe, speeds=tuple(speeds))


def test_what_all_jobs_share_of_the_network_tells_a_job_of_shapes_that_it_never_had():
    past = [ended(level, 4, *more) for level in (0.02, 0.05, 0.1) for more in ((8, 16), (16, 32), (8, 12))]
    network = network_of(past)
    alone = (Speed(1, 4, 32, 0.54, 0.04),)
    informed, naive = fit_speeds(alone, (), network), fit_speeds(alone)
    for gpus, truth in ((8, 0.5 + 0.48), (16, 0.5 + 0.24)):
        assert abs(steps(informed, gpus, 32) / truth - 1.0) < 0.5 * abs(steps(naive, gpus, 32) / truth - 1.0)
    assert steps(informed, 8, 32) > 1.15 * steps(informed, 16, 32), "two nodes are a bad rung of this ladder"


def test_one_job_more_seldom_changes_what_is_known_of_the_network_and_so_no_fit():
    past = [ended(level, 4, 8, 16) for level in (0.02, 0.05, 0.1, 0.07, 0.03, 0.04)]
    assert network_of(past) == network_of([*past, ended(0.06, 4, 8, 16)])


def test_without_a_job_on_several_nodes_nothing_is_known_of_the_network():
    assert network_of([ended(0.1, 1, 2, 4)]) == NO_NETWORK


def test_how_fast_a_type_of_gpu_is_follows_from_jobs_of_one_kind_that_ran_on_several():
    past = [
        ended(level, 4, 8, pace=pace, gpu_type=name, recipe=f"r{level}")
        for level in (0.02, 0.05, 0.1)
        for name, pace in (("old", 1.0), ("new", 2.0))
    ]
    network = network_of(past)
    assert network.pace("new") / network.pace("old") == pytest.approx(2.0, rel=0.1)
    assert network.pace("unheard of") == 1.0


def test_a_job_takes_the_faster_gpus_when_both_are_free():
    past = tuple(
        ended(level, 4, 8, pace=pace, gpu_type=name, recipe=f"r{level}")
        for level in (0.02, 0.05)
        for name, pace in (("old", 1.0), ("new", 2.0))
    )
    there = tuple(NodeView(f"n{number:04d}", 4, True, gpu_type="new" if number > 1 else "old") for number in range(4))
    seen = ClusterView(10_000.0, there, (job("a", high=4),), can_reallocate=True, past=past)
    for policy in (Psrpt(history=True), Ones()):
        (target,) = policy.decide(seen, np.random.default_rng(0)).targets
        assert target.allocation[0][0] > "n0001", policy.name
