"""Clusters of several kinds of nodes: GPU types with a speed, GPUs per node, racks, partitions."""

import pytest
from imagined import FREE, go_to, nodes, traced

from ones_slurm.model.cluster import NodeView
from ones_slurm.model.errors import UsageError
from ones_slurm.model.plan import Reallocate, Status
from ones_slurm.sim.nodes import NodeKind, node_views, read_kinds, speeds_of
from ones_slurm.sim.shared import SharedCluster
from ones_slurm.sim.whole import WholeNodeCluster

SLOW = {"old": 0.5}


def mixed():
    """Two new nodes of four GPUs in partition new, one old node of eight in partition old."""
    return [
        NodeView("n1", 4, usable=True, partitions=("new",)),
        NodeView("n2", 4, usable=True, partitions=("new",)),
        NodeView("o1", 8, usable=True, gpu_type="old", partitions=("old",)),
    ]


def put(job_id, generation, *allocation):
    return Reallocate(job_id=job_id, generation=generation, allocation=allocation, batch=0)


def test_kinds_are_read_and_numbered_through():
    kinds = read_kinds("2x8:a100:gpu+debug@east, 1x4:v100*0.5:gpu,1x2")
    assert kinds == (
        NodeKind(count=2, gpus=8, gpu_type="a100", partitions=("gpu", "debug"), rack="east"),
        NodeKind(count=1, gpus=4, gpu_type="v100", speed=0.5, partitions=("gpu",)),
        NodeKind(count=1, gpus=2),
    )
    assert [(node.name, node.gpus, node.gpu_type, node.rack) for node in node_views(kinds)] == [
        ("n1", 8, "a100", "east"),
        ("n2", 8, "a100", "east"),
        ("n3", 4, "v100", "r000"),
        ("n4", 2, "", "r000"),
    ]
    assert speeds_of(kinds) == {"v100": 0.5}


@pytest.mark.parametrize("text", ["", "8x", "0x4", "4x0", "8x4:a b", "8x4@", "8x4,,2x4", "8x4:v100*-1", "x" * 5000])
def test_what_describes_no_nodes_is_answered_with_an_example(text):
    with pytest.raises(UsageError, match="describes no nodes") as caught:
        read_kinds(text)
    assert "8x4:a100:gpu@r1" in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["1x4:a100*0.5,1x4:a100", "1x4:a100*0"])
def test_a_gpu_type_has_one_speed(text):
    with pytest.raises(UsageError, match="GPU type 'a100' has"):
        speeds_of(read_kinds(text))


def test_a_training_goes_at_the_pace_of_its_slowest_gpu():
    work = [traced("new", gpus=4, run_s=100), traced("old", gpus=4, run_s=100), traced("both", gpus=8, run_s=100)]
    three = [NodeView(f"n{number}", 4, usable=True) for number in (1, 2)]
    three += [NodeView(f"o{number}", 4, usable=True, gpu_type="old") for number in (1, 2)]
    cluster = SharedCluster(three, work, FREE, speeds=SLOW)
    cluster.wait(0)
    cluster.act([put("new", 1, ("n1", 4)), put("old", 1, ("o1", 4)), put("both", 1, ("n2", 4), ("o2", 4))])
    go_to(cluster, 1e6)
    assert {job.job_id: job.end_s for job in cluster.ended} == {"new": 100, "old": 200, "both": 200}


def test_a_job_measures_and_reports_the_speed_of_the_gpus_that_it_has_now():
    there = [NodeView("n1", 4, usable=True), NodeView("o1", 4, usable=True, gpu_type="old")]
    cluster = SharedCluster(there, [traced("a", gpus=4, high=8, run_s=1000)], FREE, speeds=SLOW)
    cluster.wait(0)
    seen = []
    for generation, name in ((1, "n1"), (2, "o1")):
        cluster.act([put("a", generation, (name, 4))])
        go_to(cluster, 100.0 * generation)
        (job,) = cluster.observe().jobs
        (speed,) = job.speeds
        seen.append((speed.step_s, job.progress.samples_per_s))
    (quick_s, quick_rate), (slow_s, slow_rate) = seen
    assert slow_s == pytest.approx(2 * quick_s)
    assert slow_rate == pytest.approx(quick_rate / 2)


def test_single_gpus_are_given_within_the_jobs_partition_only():
    cluster = SharedCluster(mixed(), [traced("a", gpus=4, partition="new")], FREE)
    cluster.wait(0)
    (outcome,) = cluster.act([put("a", 1, ("o1", 4))])
    assert (outcome.status, outcome.reason) == (Status.REFUSED, "node o1 is not in partition new")
    assert cluster.act([put("a", 1, ("n2", 4))])[0].status is Status.DONE


def test_slurm_starts_jobs_in_their_partition_with_its_gpus_per_node_and_at_its_speed():
    work = [traced("new", gpus=8, run_s=100, partition="new"), traced("old", gpus=8, run_s=100, partition="old")]
    cluster = WholeNodeCluster(mixed(), work, FREE, speeds=SLOW)
    go_to(cluster, 1)
    assert {job.job_id: job.nodes for job in cluster.observe().jobs} == {"new": ("n1", "n2"), "old": ("o1",)}
    go_to(cluster, 1e6)
    assert {job.job_id: job.end_s for job in cluster.ended} == {"new": 100, "old": 200}


def test_an_elastic_job_has_a_larger_node_for_itself_and_is_no_faster_for_it():
    four, eight = NodeView("n1", 4, usable=True), NodeView("n2", 8, usable=True)
    work = [
        traced("first", gpus=4, run_s=500, wish=None),
        traced("elastic", submit_s=1, gpus=4, nodes=1, low=4, high=8, run_s=100),
        traced("small", submit_s=2, gpus=2, run_s=100, wish=None),
    ]
    cluster = WholeNodeCluster([four, eight], work, FREE)
    go_to(cluster, 3)
    assert {job.job_id: job.nodes for job in cluster.observe().jobs} == {
        "first": ("n1",),
        "elastic": ("n2",),
        "small": (),
    }


def test_a_job_too_large_for_its_partition_is_named():
    with pytest.raises(UsageError, match="job a needs 9 GPUs, and partition new has 8"):
        SharedCluster(mixed(), [traced("a", gpus=9, partition="new")], FREE)
    with pytest.raises(UsageError, match="job a needs 1 GPUs, and partition none has 0"):
        WholeNodeCluster(mixed(), [traced("a", gpus=1, partition="none")], FREE)
    assert SharedCluster(nodes(1), [traced("a", gpus=4, partition="any")], FREE).unfinished == 1
