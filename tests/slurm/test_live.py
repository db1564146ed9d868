"""Stories of the live cluster on a fake Slurm whose jobs have wrappers that follow orders."""

import time

import pytest
from elastic_world import ElasticWorld
from msgspec.structs import replace

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import Unreachable
from ones_slurm.model.plan import Outcome, Rebatch, Requeue, Shrink, Start, Status
from ones_slurm.model.sockets import Changed


@pytest.fixture
def world() -> ElasticWorld:
    return ElasticWorld(nodes=4, gpus_per_node=2)


def let_run(world, cluster, seconds):
    """Waits through; returns all events."""
    until_s, events = world.now_s + seconds, []
    while world.now_s < until_s:
        events += cluster.wait(until_s)
    return events


def outcomes(events):
    return [(event.generation, event.status) for event in events if isinstance(event, Outcome)]


def job_of(cluster, job_id):
    return next(job for job in cluster.observe().jobs if job.job_id == job_id)


def test_a_job_that_starts_gets_its_order_with_the_base_batch_of_its_wish(world):
    cluster = world.cluster()
    job_id = world.train(nodes=2)
    events = let_run(world, cluster, 10)
    assert world.wrappers[job_id].history == [(1, ("c1", "c2"), 64)]
    assert Changed(job_id, "the job is training") in events
    job = job_of(cluster, job_id)
    assert (job.elastic, job.why_rigid, job.generation, job.batch, job.nodes) == (True, "", 1, 64, ("c1", "c2"))


def test_a_shrink_takes_the_nodes_only_when_the_ranks_have_left(world):
    cluster = world.cluster()
    job_id = world.train(nodes=4)
    let_run(world, cluster, 10)
    cluster.observe()
    action = Shrink(job_id=job_id, generation=2, keep=("c1", "c3"), batch=128, lr_scale=2.0)
    assert cluster.act([action]) == [Outcome(job_id, 2, Status.ACCEPTED)]
    assert job_of(cluster, job_id).move.stage == "leaving"
    assert outcomes(let_run(world, cluster, 20)) == [(2, Status.DONE)]
    assert world.calls == [f"shrink {job_id}"]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c3"), 128)
    assert world.wrappers[job_id].lr_scale == 2.0
    assert job_of(cluster, job_id).move is None


def test_a_requeue_grows_the_job_and_skips_slurms_delay(world):
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=1, batch=192, lr_scale=3.0)])
    began_s = world.now_s
    events = []
    while not outcomes(events):
        events += cluster.wait(world.now_s + 60)
    assert outcomes(events) == [(2, Status.DONE)]
    assert world.now_s - began_s < 30
    steps = ["requeue_hold", "size_pending", "start_now", "release"]
    assert world.calls == [f"{step} {job_id}" for step in steps]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2", "c3"), 192)
    assert not world.jobs[job_id].held


def test_a_job_whose_processes_are_gone_at_once_is_not_started_in_the_second_in_which_it_was_taken_back(world):
    """slurmd would refuse it, and the job would have failed."""
    world.completing_s = 0.0
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=1, batch=192, lr_scale=3.0)])
    assert outcomes(let_run(world, cluster, 30)) == [(2, Status.DONE)]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2", "c3"), 192)


def test_a_requeue_that_finds_no_nodes_goes_back_to_the_old_size(world):
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    world.submit(nodes=3)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=1, batch=192, lr_scale=3.0)])
    events = let_run(world, cluster, 150)
    failed = next(event for event in events if isinstance(event, Outcome))
    assert failed.status is Status.FAILED
    assert "did not start with 3 nodes within 100 s" in failed.reason
    assert world.wrappers[job_id].history[-1] == (3, ("c1",), 64), "it trains again as it did"


def test_the_wait_for_nodes_of_a_requeue_is_bounded_by_the_sites_own_delay_too(world):
    """Without the right to skip the delay the job starts 121 s after the requeue."""
    world.site = replace(world.site, moves=replace(world.site.moves, skip_requeue_delay=False, start_timeout_s=300))
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=2, from_nodes=1, batch=128)])
    assert outcomes(let_run(world, cluster, 100)) == []
    assert outcomes(let_run(world, cluster, 60)) == [(2, Status.DONE)]
    assert f"start_now {job_id}" not in world.calls


def test_a_rebatch_changes_nothing_but_the_batch(world):
    cluster = world.cluster()
    job_id = world.train(nodes=2)
    let_run(world, cluster, 10)
    cluster.act([Rebatch(job_id=job_id, generation=2, batch=512, lr_scale=8.0)])
    assert outcomes(let_run(world, cluster, 20)) == [(2, Status.DONE)]
    assert world.calls == []
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2"), 512)


def test_a_waiting_job_is_told_its_size_and_starts_with_the_batch_of_it(world):
    cluster = world.cluster()
    blocker = world.submit(nodes=4)
    job_id = world.train(nodes=1)
    cluster.observe()
    cluster.act([Start(job_id=job_id, generation=1, nodes=2, batch=128, lr_scale=2.0)])
    assert outcomes(let_run(world, cluster, 5)) == [(1, Status.DONE)]
    assert job_of(cluster, job_id).batch == 128
    world.finish(blocker)
    let_run(world, cluster, 15)
    assert world.wrappers[job_id].history == [(1, ("c1", "c2"), 128)]


def test_a_job_that_declines_keeps_all_it_has(world):
    cluster = world.cluster()
    job_id = world.train(nodes=2, stubborn=True)
    let_run(world, cluster, 10)
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1",), batch=64)])
    (refused,) = [event for event in let_run(world, cluster, 10) if isinstance(event, Outcome)]
    assert (refused.status, refused.reason) == (Status.REFUSED, "the job declined: the disk is full")
    assert world.calls == []
    assert world.board.order(job_id) is None


def test_when_slurm_refuses_the_shrink_the_job_trains_on_with_its_old_nodes_and_batch(world):
    cluster = world.cluster()
    job_id = world.train(nodes=3)
    let_run(world, cluster, 10)
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1", "c2"), batch=2048, lr_scale=32.0)])
    world.slurm.caller = "user2"  # somebody took our rights away
    assert outcomes(let_run(world, cluster, 20)) == [(2, Status.REFUSED)]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2", "c3"), 64)
    assert world.wrappers[job_id].lr_scale == 1.0


def test_when_slurm_refuses_the_new_size_the_job_comes_back_at_its_old_one(world):
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=9, from_nodes=1, batch=576)])
    events = let_run(world, cluster, 40)
    refused = next(event for event in events if isinstance(event, Outcome))
    assert refused.status is Status.REFUSED
    assert "Requested node configuration is not available" in refused.reason
    assert world.wrappers[job_id].history[-1][1:] == (("c1",), 64)


def test_a_job_that_hears_nothing_is_left_alone_in_the_end(world):
    cluster = world.cluster()
    job_id = world.train(nodes=2)
    let_run(world, cluster, 10)
    world.wrappers[job_id].deaf = True
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1",), batch=64)])
    assert outcomes(let_run(world, cluster, 90)) == [(2, Status.FAILED)]
    assert world.calls == []
    let_run(world, cluster, 30)
    job = job_of(cluster, job_id)
    assert not job.elastic
    assert job.why_rigid == "no wrapper (ones-run) answers for it"


def test_a_job_that_ends_during_its_move_ends_the_move(world):
    cluster = world.cluster()
    job_id = world.train(nodes=2)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=2, batch=192)])
    world.finish(job_id)
    assert outcomes(let_run(world, cluster, 20)) == [(2, Status.REFUSED)]
    assert job_id not in [job.job_id for job in cluster.observe().jobs]


def test_a_job_whose_node_dies_during_a_shrink_comes_back_by_itself(world):
    world.rough = True
    cluster = world.cluster()
    job_id = world.train(nodes=3, save_s=20)
    let_run(world, cluster, 10)
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1", "c2"), batch=128)])
    let_run(world, cluster, 5)
    world.fail_node("c3")
    events = let_run(world, cluster, 200)
    assert outcomes(events) == [(2, Status.FAILED)]
    assert world.wrappers[job_id].history[-1][1] == ("c1", "c2", "c4"), "Slurm gave it three other nodes"
    assert job_of(cluster, job_id).elastic


@pytest.mark.parametrize(("renumbers", "trains_in"), [(True, 3), (False, 1)])
def test_a_wrapper_that_gave_up_waiting_trains_on_and_ends_the_move(world, renumbers, trains_in):
    """Also while Slurm does not answer: a standing order would stop the job again and again."""
    cluster = world.cluster()
    job_id = world.train(nodes=2, patience_s=5, renumbers=renumbers)
    let_run(world, cluster, 10)
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1",), batch=64)])
    let_run(world, cluster, 1)
    world.down = True  # Slurm does not answer while the job is stopped
    events = let_run(world, cluster, 60)
    if renumbers:
        world.down = False
        events += let_run(world, cluster, 20)
    (outcome,) = [event for event in events if isinstance(event, Outcome)]
    assert outcome.status is Status.REFUSED
    assert "went on by itself" in outcome.reason
    assert world.wrappers[job_id].history[1:] == [(trains_in, ("c1", "c2"), 64)]
    assert world.calls == [], "nothing is taken from a job that trains"


def test_an_unreachable_slurm_is_told_and_forgotten_once_it_answers(world):
    cluster = world.cluster()
    world.down = True
    with pytest.raises(Unreachable, match="Unable to contact"):
        cluster.observe()
    with pytest.raises(Unreachable, match="left alone for another"):
        cluster.observe()
    world.down = False
    world.advance(10)
    assert cluster.observe().jobs == ()


@pytest.mark.parametrize("slices", range(0, 60, 3))
def test_a_daemon_that_dies_in_a_requeue_goes_on_with_it_when_the_action_is_sent_again(slices):
    """Whenever it dies, the job ends up training with three nodes, and nobody is left held."""
    world = ElasticWorld(nodes=4)
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    action = Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=1, batch=192, lr_scale=3.0)
    cluster.act([action])
    let_run(world, cluster, slices * 0.5)
    world.restart_daemon()
    world.pause(7)
    cluster = world.cluster(generations={job_id: 2})
    cluster.observe()
    cluster.act([action])
    assert outcomes(let_run(world, cluster, 60)) == [(2, Status.DONE)]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2", "c3"), 192)
    assert not world.jobs[job_id].held


@pytest.mark.parametrize("slices", range(0, 24))
def test_a_daemon_that_dies_in_a_shrink_goes_on_with_it_when_the_action_is_sent_again(slices):
    world = ElasticWorld(nodes=4)
    cluster = world.cluster()
    job_id = world.train(nodes=4)
    let_run(world, cluster, 10)
    action = Shrink(job_id=job_id, generation=2, keep=("c1", "c2"), batch=128, lr_scale=2.0)
    cluster.act([action])
    let_run(world, cluster, slices * 0.5)
    world.restart_daemon()
    world.pause(3)
    cluster = world.cluster(generations={job_id: 2})
    cluster.observe()
    cluster.act([action])
    assert outcomes(let_run(world, cluster, 60)) == [(2, Status.DONE)]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2"), 128)


def test_a_new_daemon_adopts_a_training_job_as_it_is(world):
    job_id = world.train(nodes=2)
    let_run(world, world.cluster(), 10)
    world.restart_daemon()
    cluster = world.cluster()
    let_run(world, cluster, 30)
    assert len(world.wrappers[job_id].history) == 1, "it was not started again"
    assert job_of(cluster, job_id).generation == 1
    assert job_of(cluster, job_id).elastic


def test_why_a_job_is_rigid_is_said_in_words(world):
    cluster = world.cluster()
    wrong = world.submit(comment="ones:nodes=4-1")
    plain = world.submit()
    silent = world.submit(comment="ones:nodes=1-2")
    jobs = {job.job_id: job for job in cluster.observe().jobs}
    assert jobs[wrong].why_rigid == "its wish cannot be read: ones: nodes=4-1 runs backwards"
    assert jobs[plain].why_rigid == "its comment holds no ones: wish"
    assert jobs[silent].why_rigid == "no wrapper (ones-run) answers for it"
    assert all(job.state is JobState.RUNNING and not job.elastic for job in jobs.values())


def test_a_job_that_was_left_stopped_by_a_daemon_that_lost_its_journal_is_told_to_go(world):
    cluster = world.cluster()
    job_id = world.train(nodes=2, patience_s=1e9, save_s=5)
    let_run(world, cluster, 10)
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1",), batch=64)])
    let_run(world, cluster, 3)
    world.restart_daemon()
    for _ in range(10):
        world.pause(5)
    assert world.wrappers[job_id].phase == "left"
    cluster = world.cluster()
    cluster.observe()
    let_run(world, cluster, 10)
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2"), 64)


def test_a_job_that_is_requeued_while_it_starts_gets_an_order_for_its_new_nodes(world):
    world.rough = True
    cluster = world.cluster()
    job_id = world.train(nodes=2, patience_s=1e9, start_s=30)
    let_run(world, cluster, 10)
    world.put_back(world.jobs[job_id], "REQUEUED")
    world.drained.add("c1")
    world.wrappers[job_id].generation = 1  # its run folder remembers that it was about to enter this one
    let_run(world, cluster, 200)
    assert world.wrappers[job_id].history == [(2, ("c2", "c3"), 64)]


def test_ten_thousand_jobs_are_joined_in_well_under_a_second(world):
    cluster = world.cluster()
    world.submit(nodes=4)
    one = world.slurm.job(world.submit(comment="charge:42 ones:nodes=1-4"))
    jobs = tuple(replace(one, job_id=str(n), comment=f"charge:{n} ones:nodes=1-4") for n in range(10_000))
    snapshot = replace(world.slurm.snapshot(), jobs=jobs)
    world.slurm.snapshot = lambda: snapshot
    began_s = time.process_time()
    assert sum(job.elastic for job in cluster.observe().jobs) == 10_000
    assert time.process_time() - began_s < 1.5


def requeued_to_three(world, cluster):
    """A job whose requeue is over: it trains on three nodes."""
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=1, batch=192, lr_scale=3.0)])
    assert outcomes(let_run(world, cluster, 60)) == [(2, Status.DONE)]
    return job_id


def go_back_to_before_the_release(world, job_id):
    """slurmctld is killed and comes up with a state from before the release."""
    job = world.jobs[job_id]
    job.state, job.nodes, job.held, job.held_by_requeue, job.priority = "PENDING", [], True, True, 0
    world.wrappers[job_id].phase, world.wrappers[job_id].ranks_on = None, ()


def test_a_job_that_slurm_takes_back_to_before_its_release_is_released_again(world):
    cluster = world.cluster()
    job_id = requeued_to_three(world, cluster)
    go_back_to_before_the_release(world, job_id)
    cluster.observe()
    let_run(world, cluster, 20)
    assert world.wrappers[job_id].history[-1][1:] == (("c1", "c2", "c3"), 192)


def test_so_is_it_by_a_daemon_that_knows_of_the_requeue_from_its_journal_only(world):
    began_s = world.now_s
    job_id = requeued_to_three(world, world.cluster())
    go_back_to_before_the_release(world, job_id)
    world.restart_daemon()
    cluster = world.cluster(requeues={job_id: (began_s, world.now_s)})
    cluster.observe()
    assert not world.jobs[job_id].held


def test_a_job_that_its_user_requeues_with_a_hold_later_stays_held(world):
    cluster = world.cluster()
    job_id = requeued_to_three(world, cluster)
    let_run(world, cluster, 20)
    go_back_to_before_the_release(world, job_id)
    world.jobs[job_id].submit_s = world.now_s
    cluster.observe()
    assert world.jobs[job_id].held


def test_a_requeue_whose_release_slurm_forgets_while_the_job_waits_is_released_with_its_size_again(world):
    cluster = world.cluster()
    job_id = world.train(nodes=1)
    let_run(world, cluster, 10)
    guest = world.submit(nodes=2)
    cluster.act([Requeue(job_id=job_id, generation=2, nodes=3, from_nodes=1, batch=192)])
    let_run(world, cluster, 20)
    assert job_of(cluster, job_id).move.stage == "queued"
    job = world.jobs[job_id]
    job.held, job.held_by_requeue, job.asked_nodes = True, True, 1
    world.finish(guest)
    assert outcomes(let_run(world, cluster, 60)) == [(2, Status.DONE)]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2", "c3"), 192)
