"""The whole loop on a fake Slurm where nodes are lent: policy, reconciler, journal and live cluster."""

import pytest
from lending_world import LendingWorld
from msgspec.structs import replace

from ones_slurm.engine.guard import check_view
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.loop import Engine
from ones_slurm.engine.records import Run
from ones_slurm.engine.replay import replay
from ones_slurm.model.plan import Status
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.model.wire import Phase
from ones_slurm.policy.registry import policy_named

SETTINGS = EngineSettings(interval_s=10, min_move_gap_s=20)


class Daemon:
    """One life of onesd with the policy `equal`."""

    def __init__(self, world, path):
        self.world, self.journal = world, Journal.open(path)
        cluster = world.cluster(generations=self.journal.last_generations())
        self.journal.begin_run(Run(policy="equal", seed=7), world.now_s)
        self.engine = Engine(cluster, policy_named("equal"), self.journal, SETTINGS, seed=7)

    def live(self, seconds):
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            latest = self.engine.tick()
            if latest.view is not None:
                check_view(latest.view)
            due_s = min(self.world.now_s + SETTINGS.interval_s, until_s)
            while self.world.now_s < due_s and not self.engine.wait(due_s):
                pass

    def moves(self, job_id):
        return [(one.kind, one.from_nodes, one.to_nodes, one.outcome) for one in self.journal.moves(job_id)]


@pytest.fixture
def world():
    return LendingWorld(nodes=4, gpus_per_node=2)


@pytest.fixture
def daemon(world, tmp_path):
    alive = Daemon(world, tmp_path / "journal.db")
    yield alive
    alive.journal.close()


def held(world, job_id):
    return len(world.jobs[job_id].nodes) + sum(len(one.nodes) for one in world.lenders(job_id))


def test_a_lone_job_grows_makes_room_and_grows_back_and_never_stops(world, daemon):
    first = world.train(nodes=1)
    daemon.live(60)
    assert held(world, first) == 4
    second = world.train(nodes=2)
    daemon.live(60)
    assert (held(world, first), held(world, second)) == (2, 2)
    world.finish(second)
    daemon.live(60)
    assert held(world, first) == 4
    assert daemon.moves(first) == [
        ("grow", 1, 4, Status.DONE),
        ("shrink", 4, 2, Status.DONE),
        ("grow", 2, 4, Status.DONE),
    ]
    assert world.jobs[first].restarts == 0
    assert [batch for _, _, batch in world.wrappers[first].history] == [64, 256, 128, 256]


def test_where_slurm_refuses_companions_the_job_grows_by_a_requeue_all_the_same(world, daemon):
    world.refuses = "Batch job submission failed: Access/permission denied"
    job_id = world.train(nodes=1)
    daemon.live(240)
    assert len(world.jobs[job_id].nodes) == 4
    assert daemon.moves(job_id) == [("grow", 1, 4, Status.REFUSED), ("requeue", 1, 4, Status.DONE)]


def test_a_job_whose_script_cannot_change_in_memory_is_requeued(world, daemon):
    job_id = world.train(nodes=1)
    world.wrappers[job_id].sync = lambda nodes, told=world.wrappers[job_id].sync: replace(told(nodes), live=False)
    daemon.live(120)
    assert len(world.jobs[job_id].nodes) == 4
    assert [kind for kind, *_ in daemon.moves(job_id)] == ["requeue"]


def test_where_nobody_may_be_requeued_a_job_that_can_be_lent_nodes_grows_all_the_same(tmp_path):
    world = LendingWorld(nodes=4)
    world.site = replace(world.site, moves=replace(world.site.moves, requeue=False))
    daemon = Daemon(world, tmp_path / "journal.db")
    job_id = world.train(nodes=1)
    daemon.live(60)
    assert held(world, job_id) == 4
    daemon.journal.close()


def test_three_jobs_share_the_nodes_by_companions_and_nobody_flaps(world, daemon):
    jobs = [world.train(nodes=1) for _ in range(3)]
    daemon.live(200)
    assert sorted(held(world, job_id) for job_id in jobs) == [1, 1, 2]
    settled = len(daemon.journal.moves())
    daemon.live(400)
    assert len(daemon.journal.moves()) == settled
    assert all(world.wrappers[job_id].phase is Phase.TRAINING for job_id in jobs)


def test_a_job_comes_back_to_its_own_node_on_which_a_rank_died(world, daemon):
    job_id = world.train(nodes=3, wish="ones:nodes=1-3,batch=192-4096")
    daemon.live(60)
    before = daemon.moves(job_id)
    world.wrappers[job_id].ranks_on = ("c1", "c3")
    daemon.live(60)
    assert daemon.moves(job_id)[len(before) :] == [("rebatch", 3, 3, Status.DONE)]
    assert sorted(world.wrappers[job_id].ranks_on) == ["c1", "c2", "c3"]


def test_a_loan_on_which_a_rank_died_goes_back_and_the_job_is_lent_another_node(world, daemon):
    job_id = world.train(nodes=1, wish="ones:nodes=1-3,batch=64-4096")
    daemon.live(60)
    world.wrappers[job_id].ranks_on = ("c1", "c2")
    daemon.live(120)
    assert [kind for kind, *_ in daemon.moves(job_id)] == ["grow", "shrink", "grow"]
    assert len(world.wrappers[job_id].ranks_on) == 3


def test_the_journal_of_a_site_with_companions_replays_bit_by_bit(world, daemon, tmp_path):
    for _ in range(3):
        world.train(nodes=1)
        daemon.live(40)
    with Journal.read(tmp_path / "journal.db") as journal:
        ticks, difference = replay(journal, policy_named)
    assert (ticks > 10, difference) == (True, None)


@pytest.mark.parametrize("dies_after_s", range(20, 70, 6))
def test_killed_at_any_moment_the_daemon_goes_on_and_nothing_is_left_over(tmp_path, dies_after_s):
    world = LendingWorld(nodes=4)
    first = Daemon(world, tmp_path / "journal.db")
    job_id = world.train(nodes=1)
    guest = None
    first.live(dies_after_s / 2)
    guest = world.train(nodes=2)
    first.live(dies_after_s / 2)
    first.journal.close()
    world.restart_daemon()
    world.pause(7)
    second = Daemon(world, tmp_path / "journal.db")
    second.live(200)
    assert (held(world, job_id), held(world, guest)) == (2, 2)
    assert second.journal.unfinished_actions() == []
    lent = [one for one in world.companions(job_id) + world.companions(guest) if one.state in ("PENDING", "RUNNING")]
    assert all(set(one.nodes) <= {*world.wrappers[job_id].ranks_on, *world.wrappers[guest].ranks_on} for one in lent)
    names = [options["job-name"] for options in world.submitted]
    assert len(names) == len(set(names)), "no companion was asked for twice"
    second.journal.close()
