"""PSRPT: order, price, and reluctance to move."""

import msgspec
import numpy as np
import pytest
from ones_views import ANYTHING, job, sizes, speed, view

from ones_slurm.engine.guard import check_plan
from ones_slurm.policy.psrpt import Psrpt


def decide(seen):
    plan = Psrpt().decide(seen, ANYTHING)
    check_plan(seen, plan)
    return plan


def test_one_job_alone_gets_as_much_as_helps_it():
    assert sizes(decide(view(4, job("only", left=10**7)))) == {"only": 16}


def test_the_short_job_is_served_before_the_long_one():
    plan = sizes(decide(view(1, job("long", left=10**7), job("short", left=10**4))))
    assert plan["short"] >= 1
    assert plan["long"] < 4


def test_the_more_jobs_wait_behind_the_smaller_a_job_gets():
    alone = sizes(decide(view(4, job("j0"))))["j0"]
    crowd = sizes(decide(view(4, *(job(f"j{n}", left=10**5 + n) for n in range(30)))))["j0"]
    assert crowd < alone


def test_a_job_that_was_never_measured_goes_first_on_one_node():
    plan = sizes(decide(view(2, job("old", left=10**7), job("new", measured=()))))
    assert plan == {"new": 4, "old": 4}


def test_a_job_is_not_grown_for_a_gain_that_the_pause_eats():
    nearly_done = job("j", (0, 4), left=30_000, start_s=9_900.0)  # half a minute
    assert sizes(decide(view(4, nearly_done))) == {"j": 4}


def test_a_job_grows_when_that_is_a_clear_gain():
    assert sizes(decide(view(4, job("j", (0, 4), left=10**7))))["j"] > 4


def test_nothing_beyond_four_times_what_was_measured_is_believed():
    assert sizes(decide(view(16, job("j", left=10**8, measured=(1, 2)))))["j"] <= 8


def test_a_job_whose_exchange_takes_all_time_stays_small():
    slow = job("slow", left=10**7, speeds=(speed(1), speed(4, sync_s=2.0), speed(8, sync_s=5.0)))
    assert sizes(decide(view(8, slow))) == {"slow": 1}


def test_small_jobs_share_nodes_and_large_ones_get_whole_ones():
    jobs = [job(f"s{n}", left=10**4, high=1) for n in range(3)]
    plan = {t.job_id: t.allocation for t in decide(view(3, *jobs, job("big", left=10**8, high=8))).targets}
    assert len({name for n in range(3) for name, _ in plan[f"s{n}"]}) == 1
    assert sorted(gpus for _, gpus in plan["big"]) == [4, 4]


def test_a_small_job_makes_room_where_no_whole_node_is_left():
    scattered = [job(f"s{n}", (n, 1), high=1, left=10**6) for n in range(2)]
    plan = {t.job_id: t.allocation for t in decide(view(2, *scattered, job("w", left=10**5, high=4))).targets}
    assert [gpus for _, gpus in plan["w"]] == [4]
    assert plan["s0"][0][0] == plan["s1"][0][0]


def test_jobs_of_two_partitions_do_not_take_each_others_nodes():
    seen = view(4, job("a", partition="x", left=10**7), job("b", partition="y", left=10**7))
    parted = tuple(
        msgspec.structs.replace(node, partitions=("x",) if at < 2 else ("y",)) for at, node in enumerate(seen.nodes)
    )
    plan = {t.job_id: t.allocation for t in decide(msgspec.structs.replace(seen, nodes=parted)).targets}
    assert {name for name, _ in plan["a"]} == {"n0000", "n0001"}
    assert {name for name, _ in plan["b"]} == {"n0002", "n0003"}


def test_a_rigid_job_keeps_its_gpus_and_is_not_planned():
    rigid = job("r", (0, 4), wish=None, elastic=False)
    plan = decide(view(2, rigid, job("e", left=10**7)))
    assert sizes(plan) == {"e": 4}
    assert plan.targets[0].allocation == (("n0001", 4),)


def test_each_decision_says_why_in_numbers():
    target = decide(view(4, job("j", (0, 4), left=10**7))).targets[0]
    assert target.numbers["left_before_s"] > target.numbers["left_after_s"] > 0
    assert target.numbers["gain_s"] == pytest.approx(target.numbers["left_before_s"] - target.numbers["left_after_s"])
    assert target.numbers["move_cost_gpu_s"] == 30 * target.numbers["size"]
    assert "instead of" in target.reason


def test_what_earlier_jobs_of_the_kind_measured_lets_a_new_one_start_large():
    done = msgspec.structs.replace(job("done", measured=(1, 4, 16)), recipe="train.py")
    from ones_slurm.model.cluster import Past

    past = (Past(user="ada", recipe="train.py", speeds=done.speeds, reports=(done.progress,), samples=10**7),)
    new = job("new", measured=(), recipe="train.py")
    assert sizes(Psrpt(history=True).decide(view(4, new, past=past), ANYTHING)) == {"new": 16}
    stranger = job("new", measured=(), recipe="train.py", user="bob")
    assert sizes(Psrpt(history=True).decide(view(4, stranger, past=past), ANYTHING)) == {"new": 4}


def test_no_gpu_is_given_twice_in_a_long_random_life():
    rng = np.random.default_rng(11)
    seen = view(4, *(job(f"j{n}", left=int(rng.lognormal(11, 2))) for n in range(10)))
    for _ in range(20):
        plan = decide(seen)
        given = {target.job_id: target.allocation for target in plan.targets}
        jobs = tuple(
            job(one.job_id, *((int(name[1:]), g) for name, g in given[one.job_id]), left=int(rng.lognormal(11, 2)))
            for one in seen.jobs
        )
        seen = msgspec.structs.replace(seen, jobs=jobs)
