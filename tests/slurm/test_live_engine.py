"""The whole loop on a fake Slurm: policy, reconciler, journal and live cluster, with wrappers that follow orders."""

import sqlite3

import pytest
from elastic_world import ElasticWorld

from ones_slurm.engine.guard import check_view
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.loop import Engine
from ones_slurm.engine.observer import Observer
from ones_slurm.engine.records import Run
from ones_slurm.engine.replay import replay
from ones_slurm.model.plan import Status
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.policy.registry import policy_named

SETTINGS = EngineSettings(interval_s=10, min_move_gap_s=20)


class Daemon:
    """One life of onesd in a world; `die` forgets everything but the journal file."""

    def __init__(self, world, path, policy="equal", observe=False):
        self.world, self.journal = world, Journal.open(path)
        cluster = world.cluster(generations=self.journal.last_generations())
        cluster = Observer(cluster) if observe else cluster
        self.journal.begin_run(Run(policy=policy, seed=7, mode="observe" if observe else "act"), world.now_s)
        self.engine = Engine(cluster, policy_named(policy), self.journal, SETTINGS, seed=7)

    def live(self, seconds):
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            latest = self.engine.tick()
            if latest.view is not None:
                check_view(latest.view)
            due_s = min(self.world.now_s + SETTINGS.interval_s, until_s)
            while self.world.now_s < due_s and not self.engine.wait(due_s):
                pass

    def die(self):
        self.journal.close()
        self.world.restart_daemon()


@pytest.fixture
def world():
    return ElasticWorld(nodes=4, gpus_per_node=2)


def sizes(world):
    return {job.job_id: len(job.nodes) for job in world.jobs.values() if job.state == "RUNNING"}


def test_a_lone_job_grows_over_the_cluster_shrinks_for_others_and_grows_back(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db")
    first = world.train(nodes=1)
    daemon.live(90)
    assert sizes(world) == {first: 4}
    second = world.train(nodes=2)
    daemon.live(90)
    assert sizes(world) == {first: 2, second: 2}
    world.finish(second)
    daemon.live(120)
    assert sizes(world) == {first: 4}
    moves = [(move.kind, move.from_nodes, move.to_nodes, move.outcome) for move in daemon.journal.moves(first)]
    assert moves == [
        ("requeue", 1, 4, Status.DONE),
        ("shrink", 4, 2, Status.DONE),
        ("requeue", 2, 4, Status.DONE),
    ]
    generations = [generation for generation, _, _ in world.wrappers[first].history]
    assert generations == sorted(set(generations))
    assert [batch for _, _, batch in world.wrappers[first].history] == [64, 256, 128, 256]


def test_three_jobs_share_four_nodes_and_nobody_flaps(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db")
    jobs = [world.train(nodes=1) for _ in range(3)]
    daemon.live(300)
    assert sorted(sizes(world).values()) == [1, 1, 2]
    settled = len(daemon.journal.moves())
    daemon.live(600)
    assert len(daemon.journal.moves()) == settled
    assert settled <= 4
    assert all(world.wrappers[job].phase == "training" for job in jobs)


def test_a_rigid_job_in_the_queue_makes_an_elastic_one_smaller(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db")
    elastic = world.train(nodes=1)
    daemon.live(60)
    rigid = world.submit(nodes=3)
    daemon.live(60)
    assert sizes(world) == {elastic: 1, rigid: 3}


def test_an_observer_plans_and_touches_nothing(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db", observe=True)
    job_id = world.train(nodes=1)
    daemon.live(120)
    assert world.calls == []
    assert sizes(world) == {job_id: 1}
    assert {move.outcome for move in daemon.journal.moves(job_id)} == {Status.OBSERVED}
    assert any(line.what == "requeue" for line in daemon.journal.story(job_id))


def test_fifo_never_moves_anybody(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db", policy="fifo")
    job_id = world.train(nodes=1)
    daemon.live(120)
    assert sizes(world) == {job_id: 1}
    assert world.calls == []


def test_a_journal_replays_to_the_same_plans_bit_by_bit(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db")
    for _ in range(3):
        world.train(nodes=1)
        daemon.live(40)
    with Journal.read(tmp_path / "journal.db") as journal:
        ticks, difference = replay(journal, policy_named)
        assert (ticks, difference) == (journal.last_tick(), None)
        assert ticks > 10


def test_a_changed_policy_is_found_by_the_replay(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db")
    world.train(nodes=1)
    daemon.live(40)
    with Journal.read(tmp_path / "journal.db") as journal:
        _, difference = replay(journal, lambda _: policy_named("fifo"))
    assert difference is not None
    assert difference.recorded != difference.replayed


def test_slurm_away_for_a_while_stops_nothing_and_is_told_once(world, tmp_path):
    daemon = Daemon(world, tmp_path / "journal.db")
    job_id = world.train(nodes=1)
    daemon.live(20)
    world.down = True
    daemon.live(60)
    assert "Unable to contact" in daemon.engine.latest.trouble or "left alone" in daemon.engine.latest.trouble
    assert daemon.engine.latest.view is not None, "the last view is still there to be shown"
    world.down = False
    daemon.live(120)
    assert daemon.engine.latest.trouble == ""
    assert sizes(world) == {job_id: 4}


class Killed(BaseException):
    """SIGKILL, as far as the daemon can tell."""


class DyingConnection:
    """A database connection that dies at its n-th statement: before it, or right after."""

    def __init__(self, db, dies_at, after):
        self.db, self.left, self.after = db, dies_at, after

    def __getattr__(self, name):
        return getattr(self.db, name)

    def execute(self, sql, *args):
        return self._count(sql, lambda: self.db.execute(sql, *args))

    def executemany(self, sql, *args):
        return self._count(sql, lambda: self.db.executemany(sql, *args))

    def _count(self, sql, run):
        if sql == "rollback":  # a killed process rolls nothing back; SQLite does at the next open
            raise Killed
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        result = run()
        if self.left == 0:
            raise Killed
        return result


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 90, 2))
def test_killed_at_any_write_of_its_journal_the_daemon_goes_on_where_it_was(tmp_path, dies_at, after):
    world = ElasticWorld(nodes=4, gpus_per_node=2)
    first = world.train(nodes=1)
    daemon = Daemon(world, tmp_path / "journal.db")
    db = daemon.journal._db
    daemon.journal._db = DyingConnection(db, dies_at, after)
    second = None
    try:
        for _ in range(20):
            daemon.live(25)
            second = second or world.train(nodes=2)
    except Killed:
        pass
    else:
        pytest.fail("it was to be killed")
    db.close()
    daemon.die()
    ticks = sqlite3.connect(tmp_path / "journal.db").execute("select count(*) from ticks").fetchone()[0]
    daemon = Daemon(world, tmp_path / "journal.db")
    assert daemon.engine.latest.tick == ticks
    second = second or world.train(nodes=2)
    daemon.live(300)
    assert sizes(world) == {first: 2, second: 2}
    assert daemon.journal.unfinished_actions() == []
    assert not any(job.held for job in world.jobs.values())
    assert replay(daemon.journal, policy_named)[1] is None
