"""Stories of jobs that grow by companions and shrink while they train, on a fake Slurm."""

import pytest
from lending_world import LendingWorld
from msgspec.structs import replace

from ones_slurm.model.plan import Grow, Outcome, Rebatch, Requeue, Shrink, Status
from ones_slurm.model.wire import LoanAnswer, Phase


@pytest.fixture
def world():
    return LendingWorld(nodes=4, gpus_per_node=2)


def let_run(world, cluster, seconds):
    """Waits through, with a look at everything every ten seconds, as the engine does; returns the outcomes."""
    until_s, events = world.now_s + seconds, []
    while world.now_s < until_s:
        look_s = min(until_s, world.now_s + 10)
        while world.now_s < look_s:
            events += cluster.wait(look_s)
        cluster.observe()
    return [event for event in events if isinstance(event, Outcome)]


def job_of(cluster, job_id):
    return next(job for job in cluster.observe().jobs if job.job_id == job_id)


def grow(job_id, generation=2, *, nodes=3, from_nodes=1, batch=192):
    return Grow(job_id=job_id, generation=generation, nodes=nodes, from_nodes=from_nodes, batch=batch, lr_scale=3.0)


def trained(world, cluster, nodes=1, **more):
    """A job that trains since ten seconds."""
    job_id = world.train(nodes=nodes, **more)
    let_run(world, cluster, 10)
    return job_id


def grown(world, cluster):
    """A job of one node that trains on three, two of them lent."""
    job_id = trained(world, cluster)
    cluster.act([grow(job_id)])
    assert [one.status for one in let_run(world, cluster, 20)] == [Status.DONE]
    return job_id


def test_a_job_grows_by_a_companion_and_never_stops(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    assert job_of(cluster, job_id).can_grow
    assert cluster.act([grow(job_id)]) == [Outcome(job_id, 2, Status.ACCEPTED)]
    (outcome,) = let_run(world, cluster, 20)
    assert (outcome.status, outcome.reason) == (Status.DONE, "trains")
    assert world.calls == [], "nothing was done to the job itself"
    assert world.wrappers[job_id].history == [(1, ("c1",), 64), (2, ("c1", "c2", "c3"), 192)]


def test_a_companion_inherits_what_its_base_has_and_is_marked(world):
    cluster = world.cluster()
    job_id = trained(world, cluster, time_limit_s=7200)
    world.jobs[job_id].qos, world.jobs[job_id].account = "long", "physics"
    let_run(world, cluster, 1200)
    cluster.act([grow(job_id)])
    let_run(world, cluster, 20)
    (options,) = world.submitted
    told = {name: options[name] for name in ("account", "qos", "partition", "nodes", "gres", "exclude", "uid")}
    assert told == {
        "account": "physics",
        "qos": "long",
        "partition": "gpu",
        "nodes": "2",
        "gres": "gpu:2",
        "exclude": "c1",
        "uid": "user1",
    }
    assert options["comment"] == f"charge:7 ones:companion-of={job_id}"
    assert 97 <= int(options["time"]) <= 100, "of 120 minutes about twenty have passed"


def test_the_view_counts_each_node_once_and_shows_no_job_for_the_companion(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    cluster.act([grow(job_id)])
    for _ in range(12):
        cluster.wait(world.now_s + 1)
        view = cluster.observe()
        (job,) = view.jobs
        missing = max(job.move.nodes - len(job.nodes), 0) if job.move is not None else 0
        assert len(view.free_nodes()) - missing == 1, "the nodes of the growth are promised to it, or held by it"
    assert (job.nodes, [one.nodes for one in job.lent]) == (("c1", "c2", "c3"), [("c2", "c3")])
    assert (job.elastic, job.gpus, job.batch_host) == (True, 6, "c1")


def test_a_companion_is_ended_only_when_the_ranks_have_left_it(world):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    lender = world.lenders(job_id)[0].job_id
    world.wrappers[job_id].switch_s = 8.0
    cluster.act([Shrink(job_id=job_id, generation=3, keep=("c1",), batch=64)])
    assert let_run(world, cluster, 5) == []
    assert world.calls == []
    assert [one.status for one in let_run(world, cluster, 10)] == [Status.DONE]
    assert world.calls == [f"cancel {lender}"]
    assert world.wrappers[job_id].history[-1] == (3, ("c1",), 64)
    assert job_of(cluster, job_id).nodes == ("c1",)


def test_own_nodes_are_given_back_under_running_ranks(world):
    cluster = world.cluster()
    job_id = trained(world, cluster, nodes=4)
    cluster.act([Shrink(job_id=job_id, generation=2, keep=("c1", "c3"), batch=128)])
    assert [one.status for one in let_run(world, cluster, 10)] == [Status.DONE]
    assert world.calls == [f"shrink {job_id}"]
    assert world.wrappers[job_id].phase is Phase.TRAINING
    assert world.wrappers[job_id].history == [(1, ("c1", "c2", "c3", "c4"), 64), (2, ("c1", "c3"), 128)]


def test_a_loan_may_be_given_back_in_part(world):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    lender = world.lenders(job_id)[0].job_id
    cluster.act([Shrink(job_id=job_id, generation=3, keep=("c1", "c2"), batch=128)])
    assert [one.status for one in let_run(world, cluster, 10)] == [Status.DONE]
    assert world.calls == [f"shrink {lender}"]
    assert job_of(cluster, job_id).nodes == ("c1", "c2")


def test_another_batch_needs_no_stop_either(world):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    cluster.act([Rebatch(job_id=job_id, generation=3, batch=512, lr_scale=8.0)])
    assert [one.status for one in let_run(world, cluster, 10)] == [Status.DONE]
    assert world.calls == []
    assert world.wrappers[job_id].history[-1] == (3, ("c1", "c2", "c3"), 512)


def test_a_companion_that_slurm_refuses_changes_nothing_and_the_job_grows_by_requeues_for_a_while(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    world.refuses = "Batch job submission failed: Job violates accounting/QOS policy"
    cluster.act([grow(job_id)])
    (outcome,) = let_run(world, cluster, 10)
    assert outcome.status is Status.REFUSED
    assert "violates accounting/QOS policy" in outcome.reason
    assert world.wrappers[job_id].history == [(1, ("c1",), 64)]
    job = job_of(cluster, job_id)
    assert (job.live, job.can_grow, job.elastic) == (True, False, True)
    let_run(world, cluster, world.site.moves.companion_retry_s)
    assert job_of(cluster, job_id).can_grow


def test_a_companion_that_waits_for_a_limit_is_withdrawn_soon(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    world.limited = "QOSMaxJobsPerUserLimit"
    cluster.act([grow(job_id)])
    (outcome,) = let_run(world, cluster, 15)
    assert outcome.status is Status.REFUSED
    assert "QOSMaxJobsPerUserLimit" in outcome.reason
    assert [one.state for one in world.companions(job_id)] == ["CANCELLED"]


def test_a_companion_that_starts_too_late_is_withdrawn_and_the_job_trains_on(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    world.submit(nodes=3, user="user2")  # somebody else was faster
    cluster.act([grow(job_id)])
    assert let_run(world, cluster, 35) == []
    (outcome,) = let_run(world, cluster, 15)
    assert (outcome.status, "did not start within 40 s" in outcome.reason) == (Status.FAILED, True)
    assert [one.state for one in world.companions(job_id)] == ["CANCELLED"]
    assert world.wrappers[job_id].history == [(1, ("c1",), 64)]
    assert job_of(cluster, job_id).can_grow, "it may try again"


@pytest.mark.parametrize("shy", [True, False])
def test_a_companion_that_never_gets_ready_is_ended(world, shy):
    cluster = world.cluster()
    job_id = trained(world, cluster, shy=shy, come_up_s=2.0 if shy else 1e9)
    cluster.act([grow(job_id)])
    (outcome,) = let_run(world, cluster, 60)
    assert (outcome.status, "was not ready" in outcome.reason) == (Status.FAILED, True)
    assert world.lenders(job_id) == []


def test_a_companion_that_dies_before_it_is_taken_in_ends_the_growth(world):
    cluster = world.cluster()
    job_id = trained(world, cluster, come_up_s=20)
    cluster.act([grow(job_id)])
    let_run(world, cluster, 5)
    world.finish(world.lenders(job_id)[0].job_id, "FAILED")
    (outcome,) = let_run(world, cluster, 10)
    assert (outcome.status, "has ended: FAILED" in outcome.reason) == (Status.FAILED, True)
    assert world.board.order(job_id) is None


def test_a_job_that_does_not_take_its_companion_in_loses_it_again(world):
    cluster = world.cluster()
    job_id = trained(world, cluster, frozen=True)
    cluster.act([grow(job_id)])
    (outcome,) = let_run(world, cluster, 130)
    assert (outcome.status, "did not follow" in outcome.reason) == (Status.FAILED, True)
    let_run(world, cluster, 60)
    assert world.lenders(job_id) == []
    assert job_of(cluster, job_id).nodes == ("c1",)


@pytest.mark.parametrize("how", ["COMPLETED", "CANCELLED"])
def test_a_companion_ends_with_its_base(world, how):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    world.finish(job_id, how)
    let_run(world, cluster, 15)
    assert [one.state for one in world.companions(job_id)] == ["CANCELLED"]


def test_a_companion_that_may_not_be_ended_now_is_ended_later(world):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    world.finish(job_id)
    world.slurm.caller = "user2"
    let_run(world, cluster, 30)
    assert world.calls == [], "nor is Slurm asked again and again"
    world.slurm.caller = "root"
    let_run(world, cluster, 600)
    assert [one.state for one in world.companions(job_id)] == ["CANCELLED"]


def test_a_companion_of_an_earlier_run_is_of_no_use(world):
    world.rough = True
    cluster = world.cluster()
    job_id = grown(world, cluster)
    world.put_back(world.jobs[job_id], "REQUEUED")
    let_run(world, cluster, 15)
    assert world.lenders(job_id) == []


def test_a_requeue_gives_the_loans_back_first(world):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    lender = world.lenders(job_id)[0].job_id
    cluster.act([Requeue(job_id=job_id, generation=3, nodes=4, from_nodes=3, batch=256)])
    assert [one.status for one in let_run(world, cluster, 60)] == [Status.DONE]
    assert world.calls[:2] == [f"cancel {lender}", f"requeue_hold {job_id}"]
    assert world.wrappers[job_id].history[-1] == (3, ("c1", "c2", "c3", "c4"), 256)


def test_a_job_may_grow_twice(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    cluster.act([grow(job_id, nodes=2)])
    let_run(world, cluster, 15)
    cluster.act([grow(job_id, 3, nodes=4, from_nodes=2, batch=256)])
    assert [one.status for one in let_run(world, cluster, 15)] == [Status.DONE]
    assert [one.nodes for one in job_of(cluster, job_id).lent] == [("c2",), ("c3", "c4")]


def test_a_job_that_ends_soon_is_lent_nothing(world):
    cluster = world.cluster()
    job_id = trained(world, cluster, time_limit_s=600)
    assert job_of(cluster, job_id).can_grow
    let_run(world, cluster, 570)
    assert not job_of(cluster, job_id).can_grow


def test_nodes_without_ranks_are_told_and_an_idle_companion_is_ended(world):
    cluster = world.cluster()
    job_id = grown(world, cluster)
    wrapper = world.wrappers[job_id]
    wrapper.ranks_on = ("c1", "c2")
    let_run(world, cluster, 1)
    assert job_of(cluster, job_id).idle == ("c3",)
    wrapper.ranks_on = ("c1",)
    let_run(world, cluster, 60)
    assert world.lenders(job_id) == []
    job = job_of(cluster, job_id)
    assert (job.nodes, job.idle) == (("c1",), ())


def test_a_stranger_cannot_lend_nodes_to_a_job_by_his_comment(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    stranger = world.submit(nodes=1, user="user2", comment=f"ones:companion-of={job_id}")
    assert job_of(cluster, job_id).nodes == ("c1",)
    job = job_of(cluster, stranger)
    assert (job.nodes, job.elastic, job.why_rigid) == (("c2",), False, f"it lends its nodes to job {job_id}")


@pytest.mark.parametrize("slices", range(0, 24))
def test_a_daemon_that_dies_in_a_growth_goes_on_with_it_and_asks_for_no_second_companion(slices):
    world = LendingWorld(nodes=4)
    cluster = world.cluster()
    job_id = trained(world, cluster)
    cluster.act([grow(job_id)])
    until_s = world.now_s + slices * 0.5
    while world.now_s < until_s:
        cluster.wait(until_s)
    world.restart_daemon()
    world.pause(3)
    cluster = world.cluster(generations={job_id: 2})
    cluster.observe()
    cluster.act([grow(job_id)])
    assert [one.status for one in let_run(world, cluster, 60)] == [Status.DONE]
    assert world.wrappers[job_id].history[-1] == (2, ("c1", "c2", "c3"), 192)
    assert len(world.submitted) == 1


@pytest.mark.parametrize("slices", range(0, 8))
def test_a_daemon_that_dies_in_a_shrink_without_a_stop_goes_on_with_it(slices):
    world = LendingWorld(nodes=4)
    cluster = world.cluster()
    job_id = grown(world, cluster)
    shrink = Shrink(job_id=job_id, generation=3, keep=("c1", "c2"), batch=128)
    cluster.act([shrink])
    until_s = world.now_s + slices * 0.5
    while world.now_s < until_s:
        cluster.wait(until_s)
    world.restart_daemon()
    world.pause(3)
    cluster = world.cluster(generations={job_id: 3})
    cluster.observe()
    cluster.act([shrink])
    assert [one.status for one in let_run(world, cluster, 30)] == [Status.DONE]
    assert world.wrappers[job_id].history[-1] == (3, ("c1", "c2"), 128)
    assert {name for one in [world.jobs[job_id], *world.lenders(job_id)] for name in one.nodes} == {"c1", "c2"}


def test_slurm_away_in_the_middle_asks_for_no_second_companion(world):
    cluster = world.cluster()
    job_id = trained(world, cluster)
    cluster.act([grow(job_id)])
    world.down = True
    cluster.wait(world.now_s + 5)
    world.down = False
    assert [one.status for one in let_run(world, cluster, 40)] == [Status.DONE]
    assert len(world.submitted) == 1


class TestWhoSubmits:
    """Where the job or its user's agent submits, the request stands on the board until the companion shows."""

    @pytest.mark.parametrize("who", ["job", "agent"])
    def test_a_request_is_served_and_the_job_grows(self, who):
        world = LendingWorld(nodes=4, who=who)
        cluster = world.cluster()
        world.board.loans.of_user("user1", world.now_s)
        job_id = trained(world, cluster)
        cluster.act([grow(job_id)])
        cluster.wait(world.now_s + 1)
        loan = world.board.loans.of_job(job_id)
        assert (loan.nodes, loan.generation, loan.exclude) == (2, 2, ("c1",))
        assert world.board.loans.of_user("user1", world.now_s) == (loan,)
        assert world.board.loans.of_user("user2", world.now_s) == ()
        world.submit(nodes=2, name=f"ones-companion.{job_id}.0.2", comment=loan.comment, avoid=loan.exclude)
        assert [one.status for one in let_run(world, cluster, 20)] == [Status.DONE]
        assert world.board.loans.of_job(job_id) is None

    def test_a_refusal_ends_the_growth_at_once(self):
        world = LendingWorld(nodes=4, who="job")
        cluster = world.cluster()
        job_id = trained(world, cluster)
        cluster.act([grow(job_id)])
        cluster.wait(world.now_s + 1)
        world.board.loans.answer(job_id, LoanAnswer(restarts=0, generation=9, refused="of another time"))
        world.board.loans.answer(job_id, LoanAnswer(restarts=0, generation=2, refused="sbatch: not from here"))
        world.board.stir(job_id)
        (outcome,) = let_run(world, cluster, 10)
        assert (outcome.status, outcome.reason) == (
            Status.REFUSED,
            "Slurm refused the companion: sbatch: not from here",
        )

    def test_without_its_users_agent_a_job_grows_by_requeues(self):
        world = LendingWorld(nodes=4, who="agent")
        cluster = world.cluster()
        job_id = trained(world, cluster)
        assert not job_of(cluster, job_id).can_grow
        world.board.loans.of_user("user1", world.now_s)
        assert job_of(cluster, job_id).can_grow
        let_run(world, cluster, 100)
        assert not job_of(cluster, job_id).can_grow

    def test_a_request_that_nobody_serves_is_given_up(self):
        world = LendingWorld(nodes=4, who="job")
        cluster = world.cluster()
        job_id = trained(world, cluster)
        cluster.act([grow(job_id)])
        (outcome,) = let_run(world, cluster, 60)
        assert (outcome.status, "no companion came up" in outcome.reason) == (Status.REFUSED, True)
        assert world.board.loans.of_job(job_id) is None


def test_a_site_without_companions_touches_none(world):
    world.site = replace(world.site, moves=replace(world.site.moves, companions="none"))
    cluster = super(LendingWorld, world).cluster()
    job_id = trained(world, cluster)
    lent = world.submit(nodes=1, name=f"ones-companion.{job_id}.0.9", comment=f"ones:companion-of={job_id}")
    let_run(world, cluster, 100)
    assert not job_of(cluster, job_id).can_grow
    assert world.jobs[lent].state == "RUNNING"
