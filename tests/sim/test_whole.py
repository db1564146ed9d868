"""An imagined Slurm: jobs start by themselves and change size in the ways of the live cluster."""

from imagined import FREE, go_to, nodes, traced

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Outcome, Requeue, Shrink, Start, Status
from ones_slurm.model.settings import Costs, Moves
from ones_slurm.sim.whole import WholeNodeCluster

COSTS = Costs(start_s=30, save_s=10, rescale_s=5, rebatch_s=3, requeue_delay_s=121)


def elastic(job_id, *, at_nodes=2, run_s=1000.0, **more):
    """Between one and four nodes of four GPUs, and asks for `at_nodes`."""
    return traced(job_id, gpus=4 * at_nodes, low=4, high=16, run_s=run_s, **more)


def state_of(cluster, job_id):
    return next(job for job in cluster.observe().jobs if job.job_id == job_id)


def test_jobs_start_in_order_and_small_ones_backfill_without_delaying_the_first():
    work = [
        traced("runs", gpus=4, run_s=100),
        traced("large", submit_s=1, gpus=8, run_s=10),
        traced("short", submit_s=2, gpus=4, run_s=50),
        traced("long", submit_s=3, gpus=4, run_s=150),
    ]
    cluster = WholeNodeCluster(nodes(2), work, FREE)
    go_to(cluster, 3)
    running = {job.job_id for job in cluster.observe().jobs if job.nodes}
    assert running == {"runs", "short"}
    while cluster.unfinished:
        cluster.wait(1e9)
    starts = {job.job_id: job.first_start_s for job in cluster.ended}
    assert starts["large"] == 100
    assert starts["long"] == 110


def test_a_requeue_costs_the_checkpoint_the_delay_and_the_start():
    cluster = WholeNodeCluster(nodes(4), [elastic("a", run_s=1000)], COSTS)
    cluster.wait(0)
    cluster.wait(100)
    assert state_of(cluster, "a").nodes == ("n1", "n2")
    action = Requeue(job_id="a", generation=1, nodes=4, batch=0, from_nodes=2)
    assert cluster.act([action])[0].status is Status.ACCEPTED
    assert state_of(cluster, "a").move.kind == "requeue"
    began_s = cluster.now()
    events = []
    while not any(isinstance(event, Outcome) for event in events):
        events = cluster.wait(1e9)
    assert cluster.now() == began_s + 10 + 121 + 30
    assert Outcome("a", 1, Status.DONE, "trains") in events
    assert len(state_of(cluster, "a").nodes) == 4
    assert state_of(cluster, "a").restarts == 1


def test_a_shrink_frees_its_nodes_after_the_checkpoint_and_goes_on():
    cluster = WholeNodeCluster(nodes(2), [elastic("a"), traced("b", submit_s=1, gpus=4)], COSTS)
    cluster.wait(0)
    cluster.wait(1)
    cluster.wait(50)
    cluster.act([Shrink(job_id="a", generation=1, keep=("n1",), batch=0)])
    began_s = cluster.now()
    cluster.wait(1e9)
    assert cluster.now() == began_s + 10  # b has started on the node that was given up
    assert state_of(cluster, "b").nodes == ("n2",)
    assert state_of(cluster, "a").nodes == ("n1",)
    cluster.wait(1e9)
    assert state_of(cluster, "a").move is None
    assert cluster.now() == began_s + 15


def test_a_requeued_job_that_does_not_start_goes_back_to_its_old_size():
    work = [elastic("a", at_nodes=1, run_s=9000), traced("b", gpus=4, run_s=5000)]
    cluster = WholeNodeCluster(nodes(2), work, COSTS, allowed=Moves(start_timeout_s=300))
    cluster.wait(0)
    cluster.wait(100)
    cluster.act([Requeue(job_id="a", generation=1, nodes=2, batch=0, from_nodes=1)])
    outcomes = []
    while not outcomes:
        outcomes = [event for event in cluster.wait(1e9) if isinstance(event, Outcome)]
    assert outcomes[0].status is Status.FAILED
    cluster.wait(1e9)
    assert len(state_of(cluster, "a").nodes) == 1


def test_a_waiting_job_can_be_told_another_size():
    cluster = WholeNodeCluster(nodes(2), [traced("b", gpus=4), elastic("a", submit_s=1, at_nodes=2)], FREE)
    cluster.wait(1)
    cluster.wait(1)
    assert state_of(cluster, "a").state is JobState.PENDING
    assert cluster.act([Start(job_id="a", generation=1, nodes=1, batch=0)])[0].status is Status.DONE
    cluster.wait(1)
    assert state_of(cluster, "a").nodes == ("n2",)


def test_a_job_that_does_not_train_yet_is_not_elastic_and_refuses_a_move():
    cluster = WholeNodeCluster(nodes(4), [elastic("a", includes_start=False)], COSTS)
    cluster.wait(0)
    assert not state_of(cluster, "a").elastic
    refused = cluster.act([Requeue(job_id="a", generation=1, nodes=4, batch=0)])[0]
    assert refused.status is Status.REFUSED
