"""What jobs say is untrusted: nothing that they report crashes a plan, breaks it, or takes others' share for ever."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ones_views import ANYTHING, job, sizes, speed, view

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import Past, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.ones.facts import facts_of
from ones_slurm.policy.ones.paper import OnesPaper
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.psrpt import Psrpt

any_number = st.one_of(
    st.floats(), st.sampled_from([0.0, -1.0, 1e308, -1e308, 1e-308, math.nan, math.inf]), st.floats(1e-3, 1e3)
)
any_count = st.one_of(st.integers(0, 2**53), st.sampled_from([0, 1, 2**53]))
metric = st.sampled_from(
    [
        "grad_sqr",
        "grad_var",
        "max_batch",
        "max_local_batch",
        "min_local_batch",
        "epoch_samples",
        "accuracy",
        "first_loss",
        "mad",
    ]
)
any_progress = st.builds(
    Progress,
    epoch=any_count,
    step=any_count,
    samples=any_count,
    total_samples=st.none() | any_count,
    samples_per_s=any_number,
    loss=st.none() | any_number,
    base_batch=st.none() | any_count,
    metrics=st.dictionaries(metric, any_number, max_size=8),
)
any_speed = st.builds(
    Speed,
    nodes=st.integers(-1, 100),
    gpus=st.integers(-1, 400),
    local_batch=st.integers(-1, 2**40),
    step_s=any_number,
    sync_s=any_number,
)
any_speeds = st.lists(any_speed, max_size=5).map(tuple)
policies = pytest.mark.parametrize("policy", [Psrpt(history=True), Ones(), OnesPaper()], ids=lambda policy: policy.name)


@policies
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    told=st.lists(st.tuples(st.none() | any_progress, any_speeds), min_size=2, max_size=2),
    past=st.lists(
        st.builds(
            Past,
            user=st.just("ada"),
            recipe=st.just("x"),
            speeds=any_speeds,
            reports=st.lists(any_progress, max_size=3).map(tuple),
            samples=any_count,
        ),
        max_size=7,
    ).map(tuple),
    served=any_number,
)
def test_no_report_crashes_a_policy_or_makes_it_give_a_gpu_twice(policy, told, past, served):
    (running, its_speeds), (waiting, other_speeds) = told
    seen = view(
        3,
        job("honest", (0, 4)),
        job("mad", (1, 2), progress=running, speeds=its_speeds, served_gpu_s=served, recipe="x"),
        job("madder", progress=waiting, speeds=other_speeds, recipe="x"),
        past=past,
    )
    plan = policy.decide(seen, np.random.default_rng(1))
    check_plan(seen, plan)
    assert all(math.isfinite(value) for target in plan.targets for value in target.numbers.values())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, 1e300])
def test_a_measurement_that_is_no_time_is_passed_over(bad):
    honest = job("j").speeds
    told = job("j", speeds=(*honest, Speed(1, 4, 32, bad, 0.0)))
    assert facts_of(told).speeds == honest


def test_who_has_trained_past_its_own_total_is_not_nearly_done():
    lies = job("lies", progress=Progress(samples=10_000, total_samples=5_000, base_batch=32))
    assert facts_of(lies).left is None


def test_a_job_that_always_says_it_is_nearly_done_loses_its_turn():
    liar = job("liar", (0, 4), (1, 4), left=1, served_gpu_s=5e6, high=8)
    honest = [job(f"h{n}", left=10_000, high=8) for n in range(8)]
    plan = sizes(Psrpt().decide(view(2, liar, *honest), ANYTHING))
    assert plan["liar"] < 8
    assert sum(plan[f"h{n}"] for n in range(8)) >= 4


def test_the_word_of_one_job_changes_nothing_in_what_is_believed_of_another():
    other = job("other")
    before = facts_of(other)
    facts_of(job("mad", progress=Progress(samples=2**53, metrics={"grad_sqr": math.nan})))
    assert facts_of(other) == before


def test_a_job_that_reports_nothing_still_gets_its_turn_and_then_makes_room():
    silent = job("silent", measured=())
    assert sizes(Psrpt().decide(view(1, silent, job("j", left=10**7)), ANYTHING))["silent"] == 4
    long_served = msgspec.structs.replace(silent, served_gpu_s=1e6)
    crowd = [job(f"j{n}", left=1000) for n in range(6)]
    assert sizes(Psrpt().decide(view(1, long_served, *crowd), ANYTHING))["silent"] == 0


def test_a_report_of_samples_a_second_alone_is_as_good_as_one_measurement():
    told = Progress(samples=1000, total_samples=10**7, samples_per_s=300.0, base_batch=32)
    wish = Wish(gpus=Bounds(1, 16), batch=Bounds(32, 32))
    quiet = job("quiet", (0, 4), measured=(), progress=told, speeds=(), wish=wish)
    plan = Psrpt().decide(view(4, quiet), ANYTHING)
    assert plan.targets[0].numbers["left_before_s"] == pytest.approx((10**7 - 1000) / 300.0, rel=0.02)


def test_a_stale_job_with_absurd_speed_does_not_take_the_whole_cluster_from_all_others():
    fast = tuple(Speed(max(n // 4, 1), n, 32, 1e-6, 0.0) for n in (1, 4, 16))
    liar = job("liar", (0, 4), left=10**9, speeds=fast, served_gpu_s=1e7)
    honest = [job(f"h{n}", left=20_000, speeds=(speed(1), speed(4))) for n in range(6)]
    plan = sizes(Ones().decide(view(4, liar, *honest), ANYTHING))
    assert sum(plan[f"h{n}"] for n in range(6)) >= 8
