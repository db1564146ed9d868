"""A cluster that gives any GPUs to any job, driven through the four methods of the socket."""

import pytest
from imagined import FREE, nodes, traced

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import UsageError
from ones_slurm.model.plan import Reallocate, Status
from ones_slurm.model.settings import Costs
from ones_slurm.sim.faults import Outage
from ones_slurm.sim.shared import SharedCluster


def put(job_id, generation, *allocation):
    return Reallocate(job_id=job_id, generation=generation, allocation=allocation, batch=0)


def test_a_job_runs_for_its_duration_and_time_jumps_from_event_to_event():
    cluster = SharedCluster(nodes(1), [traced("a", submit_s=10, run_s=100)], FREE)
    assert [event.what for event in cluster.wait(1e9)] == ["arrived"]
    assert cluster.now() == 10
    assert cluster.act([put("a", 1, ("n1", 1))])[0].status is Status.DONE
    assert [event.what for event in cluster.wait(1e9)] == ["ended"]
    assert cluster.now() == 110
    assert cluster.unfinished == 0


def test_every_move_but_the_first_start_of_a_traced_job_costs_its_pause():
    costs = Costs(start_s=30, save_s=5, rescale_s=0, rebatch_s=0)
    cluster = SharedCluster(nodes(2), [traced("a", run_s=100)], costs)
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 1))])
    cluster.wait(40)
    cluster.act([put("a", 2, ("n2", 1))])
    cluster.wait(1e9)
    assert cluster.now() == 100 + 30 + 5
    assert cluster.ended[0].moves == 1
    assert cluster.ended[0].served_gpu_s == 135


def test_two_jobs_change_places_in_one_call():
    cluster = SharedCluster(nodes(2), [traced("a", gpus=4), traced("b", gpus=4)], FREE)
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 4)), put("b", 1, ("n2", 4))])
    outcomes = cluster.act([put("a", 2, ("n2", 4)), put("b", 2, ("n1", 4))])
    assert [outcome.status for outcome in outcomes] == [Status.DONE, Status.DONE]
    assert {job.job_id: job.allocation for job in cluster.observe().jobs} == {"a": (("n2", 4),), "b": (("n1", 4),)}


def test_what_does_not_fit_is_refused_whole_and_changes_nothing():
    cluster = SharedCluster(nodes(1), [traced("a", gpus=4), traced("b", gpus=1)], FREE)
    cluster.wait(0)
    before = cluster.observe()
    outcomes = cluster.act([put("a", 1, ("n1", 4)), put("b", 1, ("n1", 1))])
    assert [outcome.status for outcome in outcomes] == [Status.REFUSED, Status.REFUSED]
    assert cluster.observe() == before


def test_an_old_generation_is_refused():
    cluster = SharedCluster(nodes(1), [traced("a")], FREE)
    cluster.wait(0)
    cluster.act([put("a", 2, ("n1", 1))])
    assert cluster.act([put("a", 1)])[0].status is Status.REFUSED


def test_a_stopped_job_keeps_what_it_has_done():
    cluster = SharedCluster(nodes(1), [traced("a", run_s=100)], FREE)
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 1))])
    cluster.wait(60)
    cluster.act([put("a", 2)])
    assert cluster.observe().jobs[0].state is JobState.PENDING
    cluster.wait(1000)
    cluster.act([put("a", 3, ("n1", 1))])
    cluster.wait(1e9)
    assert cluster.now() == 1040


def test_a_lost_node_costs_all_since_the_last_checkpoint_and_no_more():
    cluster = SharedCluster(nodes(1), [traced("a", run_s=100)], FREE, outages=[Outage(90.0, 200.0, "n1")])
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 1))])
    cluster.wait(50)
    cluster.act([put("a", 2)])  # saved at 50
    cluster.act([put("a", 3, ("n1", 1))])
    assert "lost node n1" in [event.what for event in cluster.wait(1e9)]
    assert not cluster.observe().nodes[0].usable
    assert cluster.observe().jobs[0].allocation == ()
    cluster.wait(1e9)
    assert cluster.now() == 200
    cluster.act([put("a", 4, ("n1", 1))])
    cluster.wait(1e9)
    assert cluster.now() == 250
    assert cluster.ended[0].lost_work == 40


def test_a_job_that_may_not_be_requeued_fails_with_its_node():
    cluster = SharedCluster(nodes(1), [traced("a", requeueable=False)], FREE, outages=[Outage(50.0, 60.0, "n1")])
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 1))])
    cluster.wait(1e9)
    assert cluster.ended[0].state is JobState.FAILED


def test_by_the_clock_events_count_only_at_its_ticks():
    cluster = SharedCluster(nodes(1), [traced("a", submit_s=61)], FREE, every_s=60.0)
    cluster.wait(1e9)
    assert cluster.now() == 120


def test_a_job_larger_than_the_cluster_is_refused_by_name():
    with pytest.raises(UsageError, match="job big needs 9 GPUs, and the cluster has 8"):
        SharedCluster(nodes(2), [traced("big", gpus=9)], FREE)


def test_jobs_that_span_nodes_slow_each_other_down_only_while_they_share_one():
    """Each needs 100 s alone and half as much speed beside the other: b is alone again once a has ended."""
    work = [traced("a", gpus=4, run_s=100), traced("b", gpus=4, run_s=150)]
    cluster = SharedCluster(nodes(2), work, FREE, contention=0.5)
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 2), ("n2", 2)), put("b", 1, ("n1", 2), ("n2", 2))])
    cluster.wait(1e9)
    assert cluster.now() == 200
    cluster.wait(1e9)
    assert cluster.now() == 250


def test_jobs_on_nodes_of_their_own_are_in_nobodys_way():
    work = [traced("a", gpus=4, run_s=100), traced("b", gpus=4, run_s=100)]
    cluster = SharedCluster(nodes(2), work, FREE, contention=0.5)
    cluster.wait(0)
    cluster.act([put("a", 1, ("n1", 4)), put("b", 1, ("n2", 4))])
    cluster.wait(1e9)
    assert cluster.now() == 100
