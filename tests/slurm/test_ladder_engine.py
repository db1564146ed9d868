"""The whole loop under an administrator's hand, on fake Slurms: nobody is moved who may not be, whatever stands open is
carried to its end, and the journal replays bit by bit."""

import pytest
from elastic_world import ElasticWorld
from lending_world import LendingWorld

from ones_slurm.daemon.control import ControlFile
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.ladder import Ladder
from ones_slurm.engine.loop import Engine
from ones_slurm.engine.records import Run
from ones_slurm.engine.replay import replay
from ones_slurm.model.adoption import Adoption, Control
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.policy.registry import policy_named

SETTINGS = EngineSettings(interval_s=10, min_move_gap_s=20)


class Daemon:
    """One life of onesd with the policy `equal`, its journal and its control file in one folder."""

    def __init__(self, world, folder, **adoption):
        self.world, self.journal = world, Journal.open(folder / "journal.sqlite")
        self.control = ControlFile(folder)
        cluster = world.cluster(generations=self.journal.last_generations())
        ladder = Ladder(cluster, Adoption(**adoption), self.journal, self.control.word)
        self.journal.begin_run(Run(policy="equal", seed=7), world.now_s)
        self.engine = Engine(ladder, policy_named("equal"), self.journal, SETTINGS, seed=7)

    def tick(self):
        return self.engine.tick()

    def live(self, seconds):
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            latest = self.engine.tick()
            assert not latest.trouble
            due_s = min(self.world.now_s + SETTINGS.interval_s, until_s)
            while self.world.now_s < due_s and not self.engine.wait(due_s):
                pass

    def moves(self):
        return [(move.job_id, move.kind, move.outcome) for move in self.journal.moves() if move.kind != "start"]

    def die(self):
        self.journal.close()
        self.world.restart_daemon()


def sizes(world):
    return {job.job_id: len(job.nodes) for job in world.jobs.values() if job.state == "RUNNING"}


def advice(daemon):
    return {target.job_id: target.nodes for target in daemon.engine.latest.plan.advice}


@pytest.fixture
def world():
    return ElasticWorld(nodes=4, gpus_per_node=2)


@pytest.mark.parametrize("rung", ["off", "observe", "advise", "act"])
def test_each_rung_as_an_administrator_climbs_it(world, tmp_path, rung):
    daemon = Daemon(world, tmp_path, users={"user1": rung})
    job_id = world.train(nodes=1)
    daemon.live(90)
    assert sizes(world) == {job_id: 4 if rung == "act" else 1}
    assert advice(daemon) == ({job_id: 4} if rung in ("observe", "advise") else {})
    said = " ".join(line.reason for line in daemon.journal.story(job_id))
    assert ("advice: 4 nodes" in said) == (rung == "advise")
    ticks, difference = replay(daemon.journal, policy_named)
    assert (ticks > 5, difference) == (True, None)
    daemon.die()


def test_a_pause_in_the_middle_of_a_move_and_of_a_restart(world, tmp_path):
    daemon = Daemon(world, tmp_path)
    job_id = world.train(nodes=1)
    while not daemon.moves():
        daemon.live(5)
    assert daemon.moves() == [(job_id, "requeue", None)]
    daemon.control.tell(Control.PAUSE, "root")
    daemon.die()

    daemon = Daemon(world, tmp_path)
    daemon.live(100)
    other = world.train(nodes=2)
    daemon.live(100)
    assert daemon.moves() == [(job_id, "requeue", "done")]  # what stood open was carried to its end, and no more began
    assert sizes(world) == {job_id: 4}
    assert advice(daemon)[job_id] < 4
    assert not world.jobs[job_id].held

    daemon.control.tell(Control.RUN, "root")
    daemon.live(200)
    assert sizes(world).keys() == {job_id, other}
    assert replay(daemon.journal, policy_named)[1] is None
    daemon.die()


def test_the_kill_switch_leaves_every_job_running_at_its_size(world, tmp_path):
    daemon = Daemon(world, tmp_path)
    jobs = [world.train(nodes=1), world.train(nodes=1)]
    daemon.live(150)
    before, moved = sizes(world), daemon.moves()
    assert before == dict.fromkeys(jobs, 2)
    daemon.control.tell(Control.PAUSE, "root")
    waiting = world.train(nodes=2)
    daemon.live(300)
    assert (sizes(world), daemon.moves()) == (before, moved)
    assert world.jobs[waiting].state == "PENDING"
    daemon.die()


def test_a_drain_gives_companions_back_and_is_over_when_nothing_is_on_loan(tmp_path):
    world = LendingWorld(nodes=4, gpus_per_node=2)
    daemon = Daemon(world, tmp_path)
    job_id = world.train(nodes=1)
    daemon.live(120)
    assert sum(len(one.nodes) for one in world.lenders(job_id)) == 3
    daemon.control.tell(Control.DRAIN, "root")
    daemon.live(120)
    assert world.lenders(job_id) == []
    assert sizes(world)[job_id] == 1
    view = daemon.engine.latest.view
    assert (view.draining, [job.lent for job in view.jobs if job.job_id == job_id]) == (True, [()])
    settled = daemon.moves()
    assert settled[-1] == (job_id, "shrink", "done")
    daemon.live(60)
    assert daemon.moves() == settled
    assert replay(daemon.journal, policy_named)[1] is None
    daemon.die()


def test_no_more_moves_an_hour_than_the_site_allows_also_over_a_restart(world, tmp_path):
    daemon = Daemon(world, tmp_path, max_moves_per_job_hour=1)
    first = world.train(nodes=1)
    daemon.live(90)
    assert daemon.moves() == [(first, "requeue", "done")]
    world.train(nodes=2)
    daemon.live(60)
    daemon.die()
    daemon = Daemon(world, tmp_path, max_moves_per_job_hour=1)
    daemon.live(120)
    assert daemon.moves() == [(first, "requeue", "done")]
    said = [line.reason for line in daemon.journal.story(first) if line.what == "decision"][-1]
    assert said.endswith("is at advise (was moved 1 times within an hour, and the site allows 1)")
    daemon.die()
