"""Pipeline jobs on whole nodes: sizes are whole replicas, and speed is what the searched schedule says."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView, Speed
from ones_slurm.model.wire import Pipeline, Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.equal import Equal
from ones_slurm.policy.ones.facts import facts_of
from ones_slurm.policy.ones.pipelined import pipeline_curve, steps_s
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.psrpt import Psrpt
from ones_slurm.policy.sizes import batch_at

# Eight devices in a pipeline, a ramp of seven tenths of a second and a tenth for each micro-batch of four samples.
TABLE = Pipeline(8, 4, tuple((count, 0.7 + 0.1 * count) for count in (4, 8, 16)))

MEASURED = (Speed(2, 8, 8, 2.3, 0.0),)


def job(*held, devices=8, high=4, batch=(64, 256), table=TABLE, **more):
    shape = {
        "user": "u",
        "state": JobState.RUNNING if held else JobState.PENDING,
        "asked_nodes": len(held) or max(devices // 4, 1),
        "gpus_per_node": 4,
        "partition": "gpu",
        "nodes": held,
        "batch_host": held[0] if held else "",
        "wish": Wish(pipeline="p.json", devices=devices, replicas=Bounds(1, high), batch=Bounds(*batch)),
        "elastic": True,
        "batch": batch[0] if held else 0,
        "generation": 1 if held else 0,
        "progress": Progress(samples=10_000, total_samples=1_000_000, base_batch=batch[0]) if held else None,
        "pipeline": table,
    }
    return JobView(job_id=more.pop("job_id", "a"), **(shape | more))


def cluster(count, *jobs, **more):
    nodes = tuple(NodeView(f"c{number}", 4, True, partitions=("gpu",)) for number in range(1, count + 1))
    return ClusterView(1000.0, nodes, jobs, **({"pause_s": 10.0} | more))


def targets(policy, view):
    plan = policy.decide(view, np.random.default_rng(0))
    check_plan(view, plan)
    return {target.job_id: target for target in plan.targets}


@pytest.mark.parametrize("policy", [Ones(), Psrpt(), Equal()])
def test_a_job_alone_grows_by_whole_replicas(policy):
    target = targets(policy, cluster(7, job("c1", "c2", speeds=MEASURED)))["a"]
    assert target.nodes in {4, 6}, "a replica has two nodes, and the seventh node is of no use to it"
    assert target.batch % (target.nodes // 2 * 4) == 0, "each replica gets whole micro-batches"


@pytest.mark.parametrize("policy", [Ones(), Psrpt(), Equal()])
def test_two_share_what_there_is_without_half_a_replica(policy):
    view = cluster(6, job("c1", "c2", "c3", "c4"), job("c5", "c6", job_id="b"))
    assert {target.nodes for target in targets(policy, view).values()} <= {2, 4}


def test_where_two_replicas_fit_on_a_node_it_grows_by_nodes():
    small = Pipeline(2, 4, TABLE.steps)
    alone = job("c1", devices=2, high=8, table=small, speeds=(Speed(1, 4, 16, 1.5, 0.0),))
    assert targets(Ones(), cluster(4, alone))["a"].nodes in {2, 3, 4}


def test_before_its_first_measurement_it_is_not_made_larger():
    assert targets(Ones(), cluster(8, job("c1", "c2")))["a"].nodes == 2


def test_a_job_whose_pipeline_is_not_known_yet_keeps_the_size_it_asked_for():
    unknown = job(devices=0, table=None, asked_nodes=3)
    for policy in (Ones(), Psrpt(), Equal()):
        assert targets(policy, cluster(8, unknown))["a"].nodes in {0, 3}


def test_speed_follows_the_schedule_for_the_micro_batches_that_the_batch_gives():
    facts = facts_of(job("c1", "c2", batch=(64, 64)))
    goodput, batch = pipeline_curve(facts, TABLE, ((8, 16, 12), (2, 4, 3)))
    assert batch[:2].tolist() == [64.0, 64.0]
    one, two = 64 / (0.7 + 1.6), 64 / (0.7 + 0.8)  # sixteen micro-batches, or eight on each of two
    assert goodput == pytest.approx([one, two, 0.0])


def test_what_was_measured_corrects_the_table_and_tells_what_replicas_cost_each_other():
    slow = (Speed(2, 8, 8, 2 * 2.3, 0.0), Speed(4, 16, 4, 2 * 1.5 + 0.25, 0.0))
    facts = facts_of(job("c1", "c2", batch=(64, 64), speeds=slow))
    goodput, _ = pipeline_curve(facts, TABLE, ((8, 16), (2, 4)))
    assert goodput == pytest.approx([64 / 4.6, 64 / 3.25])


def test_between_and_beyond_what_was_searched_the_table_is_a_straight_line():
    assert steps_s(TABLE, np.array([4.0, 6.0, 32.0])) == pytest.approx([1.1, 1.3, 3.9])
    assert steps_s(Pipeline(8, 4, ((8, 2.0),)), np.array([4.0, 16.0])) == pytest.approx([1.0, 4.0])


@pytest.mark.parametrize(("nodes", "batch"), [(2, 64), (4, 128), (6, 192), (8, 256)])
def test_a_batch_for_a_size_is_of_whole_micro_batches_on_every_replica(nodes, batch):
    assert batch_at(job(), nodes) == (batch, batch / 64)


numbers = st.floats(allow_nan=True, allow_infinity=True)
tables = st.builds(
    Pipeline,
    devices=st.sampled_from([1, 2, 3, 4, 8, 16, 2**20]),
    micro_batch=st.integers(1, 2**20),
    steps=st.lists(st.tuples(st.integers(0, 2**53), numbers), max_size=8).map(tuple),
)


@settings(deadline=None, max_examples=60)
@given(table=tables, rate=numbers, devices=st.sampled_from([1, 2, 4, 8]), count=st.integers(1, 9))
def test_no_table_crashes_a_policy_or_takes_what_is_not_there(table, rate, devices, count):
    names = [f"c{number}" for number in range(1, max(devices // 4, 1) + 1)]
    if len(names) > count:
        return
    progress = msgspec.structs.replace(job("c1").progress, samples_per_s=rate)
    liar = job(*names, devices=devices, high=8, table=table, progress=progress, speeds=(Speed(1, 4, 3, rate, 0.0),))
    honest = job(job_id="b")
    for policy in (Ones(), Psrpt(), Equal()):
        targets(policy, cluster(count, liar, honest))
