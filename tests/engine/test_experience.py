"""What jobs have shown is in every later view: speeds by size, what moves cost here, and what ended jobs leave."""

import msgspec
import numpy as np
import pytest
from views import job, plan, view

from ones_slurm.engine.experience import MOST_PAST, Experienced
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.engine.replay import replay
from ones_slurm.model.cluster import Move, Past, Speed
from ones_slurm.model.errors import Failed
from ones_slurm.model.plan import Outcome, Requeue, Status
from ones_slurm.model.settings import PolicyChoice
from ones_slurm.model.sockets import Changed, Finished
from ones_slurm.model.wire import Progress
from ones_slurm.policy.ones.policy import Ones


class Told:
    """A cluster that shows and tells what the test says."""

    def __init__(self, seen=None):
        self.seen, self.events = seen, []

    def now(self):
        return self.seen.now_s

    def observe(self):
        return self.seen

    def act(self, actions):
        return []

    def wait(self, until_s):
        events, self.events = self.events, []
        return events


@pytest.fixture
def journal(tmp_path):
    with Journal.open(tmp_path / "journal.db") as opened:
        yield opened


def training(samples, rate, nodes="c1", **more):
    shape = {"batch": 64, "recipe": "train.py", "progress": Progress(samples=samples, samples_per_s=rate)}
    return job("a", nodes, **(shape | more))


def looks(cluster, *jobs):
    """The speeds of job a after the cluster was seen with each of these in turn."""
    for one in jobs:
        cluster._cluster.seen = view(one)
        seen = cluster.observe()
    return seen.jobs[0].speeds


def test_a_job_is_measured_at_each_size_and_the_latest_size_stands_last(journal):
    cluster = Experienced(Told(), journal)
    one = training(64, 128.0)
    two = training(256, 320.0, "c1 c2", batch=128)
    assert looks(cluster, one) == (Speed(1, 2, 32, 0.5, 0.0),)
    assert looks(cluster, two) == (Speed(1, 2, 32, 0.5, 0.0), Speed(2, 4, 32, 0.4, 0.0))
    assert [speed.nodes for speed in looks(cluster, training(512, 128.0))] == [2, 1]


def test_later_reports_of_a_shape_count_a_part_and_one_report_counts_once(journal):
    cluster = Experienced(Told(), journal)
    looks(cluster, training(64, 64.0))
    (speed,) = looks(cluster, training(128, 32.0))
    assert speed.step_s == pytest.approx(1.3)
    assert looks(cluster, training(128, 32.0), training(128, 32.0)) == (speed,)


@pytest.mark.parametrize(
    "silent",
    [
        training(64, 0.0),
        training(64, float("nan")),
        training(64, float("inf")),
        training(64, -5.0),
        training(64, 64.0, batch=0),
        training(64, 64.0, elastic=False, why_rigid="no wrapper answers"),
        training(64, 64.0, move=Move(2, "requeue", "leaving", 999.0, 2)),
        job("a", "c1"),
        job("a"),
    ],
)
def test_what_is_no_measurement_is_none(journal, silent):
    assert looks(Experienced(Told(), journal), silent) == ()


def test_a_cluster_that_tells_speeds_itself_is_believed(journal):
    own = (Speed(1, 2, 32, 0.25, 0.1),)
    assert looks(Experienced(Told(), journal), training(64, 64.0, speeds=own)) == own


def test_after_a_restart_everything_is_still_known(journal):
    looks(Experienced(Told(), journal), training(64, 128.0))
    again = Experienced(Told(view(training(64, 0.0))), journal)
    assert again.observe().jobs[0].speeds == (Speed(1, 2, 32, 0.5, 0.0),)


def test_who_finished_says_how_long_its_kind_is_and_who_vanished_only_how_fast(journal):
    cluster = Experienced(Told(), journal)
    looks(cluster, training(64, 128.0), training(6400, 128.0))
    cluster._cluster.events = [Finished("a", Progress(samples=9000))]
    cluster.wait(0.0)
    cluster._cluster.seen = view(msgspec.structs.replace(training(64, 128.0), job_id="b"))
    cluster.observe()
    cluster._cluster.seen = view()
    past = cluster.observe().past
    assert [(one.user, one.recipe, one.samples) for one in past] == [("u", "train.py", 9000), ("u", "train.py", 0)]
    assert [report.samples for report in past[0].reports] == [64, 6400]
    assert past[1].speeds == (Speed(1, 2, 32, 0.5, 0.0),)
    assert Experienced(Told(view()), journal).observe().past == past, "a restarted daemon knows them too"
    assert journal.known() == {}


def test_without_history_ended_jobs_are_forgotten(journal):
    cluster = Experienced(Told(), journal, PolicyChoice(history=False))
    looks(cluster, training(64, 128.0))
    cluster._cluster.seen = view()
    assert cluster.observe().past == ()
    assert Experienced(Told(view()), journal, PolicyChoice(history=False)).observe().past == ()


def test_a_job_counts_as_much_as_its_user_and_account_do(journal):
    choice = PolicyChoice(user_weights={"ada": 2.0}, account_weights={"physics": 3.0})
    both, neither = job("a", "c1", user="ada", account="physics"), job("b", "c2", user="bo", account="art")
    seen = Experienced(Told(view(both, neither)), journal, choice).observe()
    assert [one.weight for one in seen.jobs] == [6.0, 1.0]


def test_a_long_life_is_told_in_few_reports_and_a_view_tells_of_few_jobs(journal):
    cluster = Experienced(Told(), journal)
    looks(cluster, *(training(samples, 128.0) for samples in range(1, 3000, 7)))
    cluster._cluster.seen = view()
    (past,) = cluster.observe().past
    assert len(past.reports) <= 16
    assert past.reports[0].samples == 1
    for number in range(MOST_PAST + 5):
        journal.end_of(f"j{number}", Past(user="u", recipe="r", samples=number), 1.0)
    kept = Experienced(Told(view()), journal).observe().past
    assert [one.samples for one in kept] == list(range(5, MOST_PAST + 5))


def moved(journal, tick, generation, took_s, status=Status.DONE):
    action = Requeue(job_id="a", generation=generation, nodes=2, batch=64)
    decisions = (Decision(job_id="a", reason="more", action=action),)
    at = 1000.0 + 100 * tick
    journal.record(
        Tick(tick=tick, now_s=at, took_s=0.0, view=view(now_s=at), plan=plan(), memory=Memory(), decisions=decisions)
    )
    journal.end(Outcome("a", generation, status), at + took_s)


def test_what_a_move_costs_is_first_what_the_site_says_and_then_what_it_took(journal):
    journal.begin_run(Run(policy="ones", seed=1), 1000.0)
    said = view(pause_s=40.0, pauses={"requeue": 40.0, "shrink": 20.0})
    cluster = Experienced(Told(said), journal)
    assert (cluster.observe().pause_s, cluster.observe().pauses["shrink"]) == (40.0, 20.0)
    for tick, took_s in enumerate((12.0, 11.0, 300.0), start=1):
        moved(journal, tick, tick + 1, took_s)
    moved(journal, 4, 5, 600.0, Status.FAILED)
    assert cluster.observe().pause_s == 40.0, "nothing has ended since it looked"
    cluster._cluster.events = [Changed("a", "the job is training"), Outcome("a", 5, Status.FAILED)]
    cluster.wait(0.0)
    assert cluster.observe().pauses == {"requeue": 12.0, "shrink": 20.0}
    assert cluster.observe().pause_s == 12.0


def test_ended_jobs_are_written_once_and_a_replay_sees_them(journal):
    journal.begin_run(Run(policy="ones", seed=1), 1000.0)
    past = tuple(Past(user="u", recipe="train.py", samples=n, speeds=(Speed(1, 2, 32, 0.5, 0.0),)) for n in range(9))
    for number in range(1, 4):
        seen = view(training(64 * number, 128.0), now_s=1000.0 + number, past=past)
        decided = Ones().decide(seen, np.random.default_rng([1, number]))
        journal.record(
            Tick(tick=number, now_s=seen.now_s, took_s=0.0, view=seen, plan=decided, memory=Memory(), decisions=())
        )
    assert [tick.view.past for tick in journal.recorded_ticks()] == [past] * 3
    assert journal._db.execute("select count(*) from pasts").fetchone() == (1,)
    assert replay(journal, lambda _: Ones()) == (3, None)
    journal.prune(2000.0)
    assert journal._db.execute("select count(*) from pasts").fetchone() == (0,)


def test_a_full_disk_when_a_job_finishes_ends_nothing_and_the_job_is_kept_at_the_next_look(journal, monkeypatch):
    cluster = Experienced(Told(), journal)
    looks(cluster, training(64, 128.0), training(6400, 128.0))
    finished = Finished("a", Progress(samples=9000))
    cluster._cluster.events = [finished]

    def full(*_):
        raise Failed("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "end_of", full)
        assert cluster.wait(0.0) == [finished]
    cluster._cluster.seen = view()
    assert [one.user for one in cluster.observe().past] == ["u"]
