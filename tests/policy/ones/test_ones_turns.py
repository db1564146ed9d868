"""Whose turn it is: weights, what was waited, and what is not known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ones_views import ANYTHING, job, sizes, view

from ones_slurm.model.wire import Progress
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.ones.situation import situation_of
from ones_slurm.policy.ones.turns import MAX_WAIT_S, importance, order_of, prices
from ones_slurm.policy.psrpt import Psrpt

NOW_S = 10_000.0
A_DAY_AGO_S = NOW_S - MAX_WAIT_S
both = pytest.mark.parametrize("policy", [Psrpt(), Ones()], ids=lambda policy: policy.name)


def served(at):
    return [at.jobs[j].job_id for j in order_of(at)]


def test_the_shortest_comes_first_and_a_weight_makes_a_job_that_much_shorter():
    long, short = job("long", left=300_000, submit_s=NOW_S), job("short", submit_s=NOW_S)
    assert served(situation_of(view(2, long, short))) == ["short", "long"]
    heavy = job("long", left=300_000, submit_s=NOW_S, weight=4.0)
    assert served(situation_of(view(2, heavy, short))) == ["long", "short"]


def test_a_gpu_second_costs_what_the_weights_of_those_behind_say():
    jobs = [job(name, left=left, weight=w) for name, left, w in (("a", 1, 2.0), ("b", 10**6, 1.0), ("c", 10**7, 5.0))]
    at = situation_of(view(2, *jobs))
    assert prices(at, order_of(at)).tolist() == pytest.approx([(1 + 5) / 2 / 8, 5 / 1 / 8, 0.0])


def test_who_waited_for_most_of_a_day_comes_before_who_is_a_little_shorter():
    old = job("old", left=130_000, submit_s=NOW_S - MAX_WAIT_S * 0.8)
    assert served(situation_of(view(2, job("new", submit_s=NOW_S), old))) == ["old", "new"]


@both
@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 60), left=st.integers(10_000_000, 10**9), seed=st.integers(0, 9))
def test_however_many_shorter_jobs_there_are_nobody_waits_longer_than_a_day(policy, count, left, seed):
    crowd = [job(f"s{n:02}", left=5_000, submit_s=NOW_S - 60) for n in range(count)]
    starved = job("starved", left=left, submit_s=A_DAY_AGO_S)
    plan = policy.decide(view(2, starved, *crowd), np.random.default_rng(seed))
    assert sizes(plan)["starved"] >= 1


@both
def test_who_ran_at_last_is_not_stopped_again_for_shorter_ones(policy):
    crowd = [job(f"s{n:02}", left=5_000, submit_s=NOW_S - 60) for n in range(40)]
    late = job("late", (0, 4), left=10**8, submit_s=A_DAY_AGO_S - 120, start_s=NOW_S - 120)
    assert sizes(policy.decide(view(2, late, *crowd), ANYTHING))["late"] >= 1


def test_who_had_gpus_all_the_time_has_not_waited():
    busy = job("busy", submit_s=A_DAY_AGO_S, served_gpu_s=MAX_WAIT_S)
    idle = job("idle", submit_s=A_DAY_AGO_S)
    assert situation_of(view(2, busy, idle)).waited_s.tolist() == [0.0, MAX_WAIT_S]


def test_who_may_be_short_counts_by_the_average_of_its_places_and_not_by_the_average_of_its_length():
    told = Progress(epoch=10, samples=1000, samples_per_s=100.0, base_batch=32, metrics={"epoch_samples": 100.0})
    sure = [job(f"s{n}", left=500 * (n + 1), submit_s=NOW_S) for n in range(6)]
    unsure = job("unsure", (0, 4), progress=told, submit_s=NOW_S, start_s=NOW_S)
    at = situation_of(view(4, *sure, unsure))
    assert at.doubt[-1] > 0.0
    assert at.doubt[:-1].max() == 0.0
    place = served(at).index("unsure")
    alone = (1.0 + place / 3.0) ** -2.0
    assert importance(at)[-1] != pytest.approx(alone, rel=1e-3)
    assert importance(at).max() <= 1.0


@pytest.mark.parametrize("weight", [float("nan"), -1.0, 0.0, 1e9])
def test_a_weight_that_is_none_is_one(weight):
    assert situation_of(view(2, job("a", weight=weight))).weight.tolist() == [1.0]
