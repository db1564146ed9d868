"""Whole nodes, as a live Slurm gives them: minima, moves under way, rigid neighbours, batches that fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ones_views import ANYTHING

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import ClusterView, JobState, JobView, Move, NodeView, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.ones.paper import OnesPaper
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.psrpt import Psrpt

both = pytest.mark.parametrize("policy", [Psrpt(), Ones()], ids=lambda policy: policy.name)


def cluster(count, *jobs, drained=(), **more):
    nodes = tuple(NodeView(f"c{number}", 2, number not in drained, partitions=("gpu",)) for number in range(count))
    return ClusterView(10_000.0, nodes, jobs, **more)


def job(job_id, *held, low=1, high=4, done=10_000, total=1_000_000, rate=500.0, batch=64, **more):
    """A training that reports samples a second and where it stands."""
    names = tuple(f"c{number}" for number in held)
    told = Progress(epoch=1, samples=done, total_samples=total, samples_per_s=rate if held else 0.0, base_batch=64)
    whole = {
        "user": "ada",
        "state": JobState.RUNNING if held else JobState.PENDING,
        "asked_nodes": 1,
        "gpus_per_node": 2,
        "partition": "gpu",
        "nodes": names,
        "batch_host": names[0] if names else "",
        "wish": Wish(nodes=Bounds(low, high), batch=Bounds(64, 1024)),
        "elastic": True,
        "start_s": 9_000.0 if held else None,
        "batch": batch,
        "progress": told if held else None,
        **more,
    }
    return JobView(job_id=job_id, **whole)


def decide(policy, seen):
    plan = policy.decide(seen, np.random.default_rng(1))
    check_plan(seen, plan)
    return {target.job_id: target for target in plan.targets}


@both
def test_a_job_alone_grows_and_its_batch_with_it(policy):
    target = decide(policy, cluster(4, job("a", 0)))["a"]
    assert target.nodes == 4
    assert 64 < target.batch <= 256
    assert target.lr_scale == pytest.approx(target.batch / 64)


@both
def test_a_running_job_is_never_stopped_only_shrunk_to_its_minimum(policy):
    short = [job(f"s{n}", done=0, total=2_000) for n in range(6)]
    seen = cluster(4, job("long", 0, 1, 2, 3, low=2, total=10**8), *short)
    plan = decide(policy, seen)
    assert plan["long"].nodes == 2
    assert sum(plan[f"s{n}"].nodes for n in range(6)) == 2


@both
def test_where_nothing_may_shrink_every_job_keeps_its_size(policy):
    seen = cluster(4, job("long", 0, 1, 2, 3), job("short", total=2_000), can_shrink=False, can_requeue=False)
    plan = decide(policy, seen)
    assert (plan["long"].nodes, plan["short"].nodes) == (4, 0)


@both
def test_nodes_of_rigid_jobs_and_of_moves_under_way_are_not_given_again(policy):
    rigid = job("r", 0, elastic=False, wish=None)
    moving = job("m", 1, move=Move(generation=2, kind="requeue", stage="left", since_s=9_990.0, nodes=2))
    plan = decide(policy, cluster(4, rigid, moving, job("w", total=10**8)))
    assert set(plan) == {"w"}
    assert plan["w"].nodes == 1


@both
def test_a_job_of_which_nothing_is_known_starts_small(policy):
    plan = decide(policy, cluster(4, job("new")))
    assert plan["new"].nodes == 1
    assert plan["new"].batch == 64


@both
def test_a_script_that_never_reports_is_moved_by_nobody(policy):
    plan = decide(policy, cluster(4, job("mute", 0, progress=None)))
    assert plan["mute"].nodes == 1


@both
def test_a_job_on_a_drained_node_is_left_alone_and_its_node_given_to_nobody(policy):
    plan = decide(policy, cluster(2, job("a", 0), job("b", total=10**8), drained={0}))
    assert {job_id: target.nodes for job_id, target in plan.items()} == {"b": 1}


def test_the_published_policy_has_no_opinion_on_whole_nodes():
    assert OnesPaper().decide(cluster(4, job("a", 0)), ANYTHING).targets == ()


@both
@settings(max_examples=80, deadline=None)
@given(
    low=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    more=st.integers(0, 4),
    count=st.integers(1, 8),
    running=st.integers(0, 5),
    shrink=st.booleans(),
    requeue=st.booleans(),
    total=st.integers(1, 10**9),
    drained=st.sets(st.integers(0, 7), max_size=2),
)
def test_every_plan_passes_the_guard(policy, *, low, more, count, running, shrink, requeue, total, drained):
    free = list(range(count))
    jobs = []
    for number, least in enumerate(low):
        size = least if number < running and least <= len(free) else 0
        held, free = free[:size], free[size:]
        jobs.append(job(f"j{number}", *held, low=least, high=least + more, done=5, total=total))
    decide(policy, cluster(count, *jobs, can_shrink=shrink, can_requeue=requeue, drained=drained))


@pytest.mark.parametrize(("left", "pays"), [(2_000, False), (2_000_000, True)])
def test_another_batch_on_the_same_nodes_must_pay_for_its_pause(left, pays):
    measured = (Speed(4, 8, 8, 0.2, 0.0), Speed(4, 8, 32, 0.22, 0.0))  # four times the batch in a tenth more time
    alone = job("a", 0, 1, 2, 3, total=10_000 + left, rate=320.0, speeds=measured, start_s=9_990.0)
    target = decide(Ones(), cluster(4, alone, pause_s=30.0, pauses={"rebatch": 10.0}))["a"]
    assert target.nodes == 4
    assert (target.batch > 64) == pays, "ten seconds are too much for a job that ends in six"


@both
def test_a_job_that_has_come_to_its_total_is_ending_and_not_moved_any_more(policy):
    seen = cluster(4, job("a", 0, done=100_000, total=100_000, start_s=9_900.0))
    assert decide(policy, seen)["a"].nodes == 1
