"""Equal shares, seen from the jobs."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import ClusterView, JobState, JobView, Move, NodeView
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.equal import Equal
from ones_slurm.policy.sizes import batch_at


def node(number, partition="gpu", usable=True, gpus=4):
    return NodeView(f"c{number}", gpus, usable, partitions=tuple(partition.split(",")))


def cluster(nodes, *jobs, **more):
    nodes = tuple(node(number) for number in range(1, nodes + 1)) if isinstance(nodes, int) else tuple(nodes)
    return ClusterView(1000.0, nodes, jobs, **more)


def job(job_id, held=0, low=1, high=8, *, batch=None, first=1, **more):
    """An elastic job that holds nodes c<first> and on, or waits."""
    names = tuple(f"c{number}" for number in range(first, first + held))
    shape = {
        "user": "u",
        "state": JobState.RUNNING if held else JobState.PENDING,
        "asked_nodes": held or low,
        "gpus_per_node": 4,
        "partition": "gpu",
        "nodes": names,
        "batch_host": names[0] if names else "",
        "wish": Wish(nodes=Bounds(low, high), batch=batch),
        "elastic": True,
    }
    return JobView(job_id=job_id, **(shape | more))


def rigid(job_id, held=0, asked=1, **more):
    return job(job_id, held, **({"wish": None, "elastic": False, "asked_nodes": held or asked} | more))


def sizes(view):
    plan = Equal().decide(view, np.random.default_rng(0))
    check_plan(view, plan)
    return {target.job_id: target.nodes for target in plan.targets}


def test_two_jobs_halve_the_cluster():
    assert sizes(cluster(8, job("a", 8), job("b"))) == {"a": 4, "b": 4}


def test_what_one_may_not_take_goes_to_the_others():
    assert sizes(cluster(9, job("a", high=1), job("b"), job("c"))) == {"a": 1, "b": 4, "c": 4}


def test_the_odd_node_stays_with_the_job_that_has_it():
    assert sizes(cluster(3, job("a", 1), job("b", 2, first=2))) == {"a": 1, "b": 2}
    assert sizes(cluster(3, job("a", 2), job("b", 1, first=3))) == {"a": 2, "b": 1}


def test_when_all_are_at_their_minimum_the_rest_waits_by_priority_then_by_age():
    late = job("late", low=2, submit_s=2.0)
    early = job("early", low=2, submit_s=1.0)
    urgent = job("urgent", low=2, submit_s=3.0, priority=9)
    assert sizes(cluster(4, late, early, urgent)) == {"urgent": 2, "early": 2, "late": 0}


def test_nobody_slips_past_a_larger_job_of_its_partition():
    big, small = job("big", low=3, priority=2), job("small", priority=1)
    assert sizes(cluster(3, job("a", 1, high=1), big, small)) == {"a": 1, "big": 0, "small": 0}


def test_rigid_jobs_and_broken_nodes_are_taken_out_first():
    nodes = [node(1), node(2), node(3, usable=False), node(4), node(5)]
    assert sizes(cluster(nodes, rigid("r", 1), job("a", 2, first=2), job("b"))) == {"a": 2, "b": 1}


def test_a_rigid_job_in_the_queue_counts_with_what_it_asks_for():
    assert sizes(cluster(4, job("a", 4), rigid("r", asked=3))) == {"a": 1}
    assert sizes(cluster(4, job("a", 4), rigid("r", asked=4))) == {"a": 4}, "it cannot fit, so nobody makes room"
    assert sizes(cluster(4, job("a", 4), rigid("r", asked=3, held=0, **{"state": JobState.PENDING}))) == {"a": 1}


def test_a_node_that_has_left_the_partition_under_its_job_is_nobody_elses():
    left = [node(1, partition="big"), node(2)]
    assert sizes(cluster(left, job("a", 1, high=1), job("b", partition="big"), job("c"))) == {"a": 1, "b": 0, "c": 0}


def test_a_held_job_takes_part_in_nothing():
    view = cluster(4, job("a", 4), msg_held("h"))
    assert sizes(view) == {"a": 4}


def msg_held(job_id):
    names = {"user": "u", "state": JobState.PENDING, "asked_nodes": 1, "gpus_per_node": 4, "partition": "gpu"}
    return JobView(job_id=job_id, wish=Wish(nodes=Bounds(1, 4)), elastic=True, held=True, **names)


def test_partitions_do_not_pay_for_each_other():
    nodes = [node(1, "x"), node(2, "x"), node(3, "y"), node(4, "x,y")]
    assert sizes(cluster(nodes, job("a", partition="x"), job("b", partition="y"))) == {"a": 2, "b": 2}


def test_a_job_on_the_move_counts_with_the_size_it_goes_to_and_is_not_planned_again():
    moving = job("m", 1, move=Move(2, "requeue", "leaving", 0.0, 3))
    assert sizes(cluster(4, moving, job("b", 1, first=2))) == {"b": 1}


@pytest.mark.parametrize(
    ("can", "more", "expected"),
    [
        ({"can_requeue": False}, {}, {"a": 2}),
        ({}, {"requeueable": False}, {"a": 2}),
        ({"can_requeue": False, "can_shrink": False}, {}, {"a": 2}),
        ({}, {}, {"a": 4}),
    ],
)
def test_nobody_is_promised_nodes_that_it_could_never_take(can, more, expected):
    assert sizes(cluster(4, job("a", 2, **more), **can)) == expected


def test_each_gpu_keeps_the_work_that_it_has_at_the_smallest_size():
    a = job("a", low=2, batch=Bounds(64, 4096))
    assert batch_at(a, 2) == (64, 1.0)
    assert batch_at(a, 4) == (128, 2.0)
    assert batch_at(a, 3) == (96, 1.5)


def test_the_batch_stays_in_its_wish_and_the_learning_rate_below_its_cap():
    assert batch_at(job("a", batch=Bounds(64, 100)), 8) == (96, 1.5), "a whole number of samples for each of 32 GPUs"
    assert batch_at(job("a", high=99, batch=Bounds(64, 10**6)), 90) == (5760, 8.0)


def test_without_a_batch_in_the_wish_the_script_keeps_its_own():
    assert batch_at(job("a", progress=Progress(base_batch=48)), 3) == (48, 1.0)
    assert batch_at(job("a"), 3) == (0, 1.0)
    assert batch_at(job("a", progress=Progress(base_batch=2**53)), 3) == (0, 1.0), "not credible"
    assert batch_at(job("a", progress=Progress(base_batch=0)), 3) == (0, 1.0)


def test_no_job_gets_more_gpus_than_samples():
    assert sizes(cluster(8, job("a", batch=Bounds(8, 8)))) == {"a": 2}


NODES = st.lists(
    st.builds(node, st.just(0), st.sampled_from(["gpu", "big", "gpu,big"]), st.booleans(), st.sampled_from([2, 4])),
    max_size=12,
)


@st.composite
def views(draw):
    nodes = [NodeView(f"c{n}", one.gpus, one.usable, "", one.partitions) for n, one in enumerate(draw(NODES), 1)]
    left, jobs = [one.name for one in nodes], []
    for number in range(draw(st.integers(0, 8))):
        held = draw(st.integers(0, min(4, len(left))))
        names, left = tuple(left[:held]), left[held:]
        low = draw(st.integers(1, 4))
        wild = st.floats() | st.just(1e308)
        has_wish = draw(st.booleans())
        batch = draw(
            st.none() | st.builds(lambda low, more: Bounds(low, low + more), st.integers(1, 99), st.integers(0, 999))
        )
        jobs.append(
            JobView(
                job_id=str(number),
                user="u",
                state=JobState.RUNNING if held else JobState.PENDING,
                asked_nodes=held or draw(st.integers(1, 20)),
                gpus_per_node=draw(st.sampled_from([0, 2, 4])),
                partition=draw(st.sampled_from(["gpu", "big", "gpu,big", ""])),
                nodes=names,
                batch_host=names[0] if names else "",
                wish=Wish(nodes=Bounds(low, low + draw(st.integers(0, 9))), batch=batch) if has_wish else None,
                elastic=has_wish,
                held=draw(st.booleans()),
                requeueable=draw(st.booleans()),
                priority=draw(st.integers(0, 3)),
                move=draw(
                    st.none()
                    | st.builds(Move, st.just(1), st.just("requeue"), st.just("left"), st.just(0.0), st.integers(1, 4))
                )
                if has_wish
                else None,
                progress=draw(st.none() | st.builds(Progress, samples_per_s=wild, base_batch=st.integers(0, 2**53))),
            )
        )
    return ClusterView(0.0, tuple(nodes), tuple(jobs), draw(st.booleans()), draw(st.booleans()))


@given(views())
@settings(max_examples=300, deadline=None)
def test_every_plan_keeps_to_bounds_and_to_what_there_is_and_is_the_same_again(view):
    first = Equal().decide(view, np.random.default_rng(0))
    check_plan(view, first)
    assert Equal().decide(view, np.random.default_rng(1)) == first
    planned = {target.job_id: target for target in first.targets}
    for one in view.jobs:
        if one.nodes and one.job_id in planned:
            assert planned[one.job_id].nodes > 0, "nobody who runs is put out"
        if one.job_id in planned:
            assert np.isfinite(planned[one.job_id].lr_scale)


def test_ten_thousand_jobs_are_planned_in_well_under_a_second():
    nodes = [node(number) for number in range(1, 1001)]
    running = [job(f"r{n}", 2, first=1 + 2 * n) for n in range(400)]
    waiting = [job(f"w{n}", submit_s=float(n)) for n in range(9600)]
    view = cluster(nodes, *running, *waiting)
    began_s = time.process_time()
    assert sum(sizes(view).values()) == 1000
    assert time.process_time() - began_s < 2.0
