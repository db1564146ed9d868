"""One file that survives everything: written before acting, read while it is written."""

import os
import pathlib
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap

import pytest
from views import job, plan, view

from ones_slurm.engine import schema
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.packing import decode_plan, encode_plan
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.errors import Failed, NotFound
from ones_slurm.model.plan import Outcome, Plan, Rebatch, Requeue, Shrink, Status, Target


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.db"


def tick(number, *decisions, now_s=None, seen=None, wanted=None, memory=None):
    return Tick(
        tick=number,
        now_s=now_s if now_s is not None else 1000.0 + number,
        took_s=0.1,
        view=seen or view(job("a", "c1 c2"), now_s=1000.0 + number),
        plan=wanted or plan(a=1),
        memory=memory or Memory(),
        decisions=decisions,
    )


def decision(action=None, reason="because", **numbers):
    return Decision(job_id="a", reason=reason, action=action, numbers=numbers)


SHRINK = Shrink(job_id="a", generation=2, keep=("c1",), batch=64, reason="others wait")


def opened(path):
    journal = Journal.open(path)
    journal.begin_run(Run(policy="equal", seed=3), 1000.0)
    return journal


def test_what_was_written_is_there_after_the_writer_died(path):
    journal = opened(path)
    journal.record(tick(1, decision(SHRINK, nodes=1.0), memory=Memory(growing={"b": 2})))
    journal.close()
    with Journal.open(path) as again:
        assert again.last_tick() == 1
        assert again.last_memory() == Memory(growing={"b": 2})
        assert again.last_plan() == plan(a=1)
        assert again.unfinished_actions() == [SHRINK]
        assert (again.last_generation("a"), again.last_generation("z")) == (2, 0)


def test_only_the_first_final_word_on_an_action_counts(path):
    journal = opened(path)
    journal.record(tick(1, decision(SHRINK)))
    journal.end(Outcome("a", 2, Status.REFUSED, "no"), 1005.0)
    journal.end(Outcome("a", 2, Status.DONE), 1006.0)
    (move,) = journal.moves("a")
    assert (move.kind, move.from_nodes, move.to_nodes) == ("shrink", 2, 1)
    assert (move.outcome, move.ended_s, move.reason, move.why) == (Status.REFUSED, 1005.0, "no", "others wait")
    assert journal.unfinished_actions() == []


def test_the_story_of_a_job_is_told_in_order_and_says_nothing_twice(path):
    journal = opened(path)
    journal.record(tick(1, decision(reason="stays")))
    journal.record(tick(2, decision(reason="stays")))
    journal.record(tick(3, decision(SHRINK, free=0.0)))
    journal.end(Outcome("a", 2, Status.DONE, "trains"), 1004.0)
    journal.event(1005.0, "first measurement", "a")
    story = [(line.what, line.reason) for line in journal.story("a")]
    assert story == [
        ("decision", "stays"),
        ("decision", "because"),
        ("shrink", ""),
        ("done", "trains"),
        ("event", "first measurement"),
    ]
    assert journal.story("a")[1].numbers == {"free": 0.0}


def test_moves_of_all_jobs_are_listed_by_time(path):
    journal = opened(path)
    other = Requeue(job_id="b", generation=1, nodes=3, batch=8)
    journal.record(tick(1, decision(SHRINK), Decision(job_id="b", reason="", action=other)))
    journal.record(tick(2, decision(Rebatch(job_id="a", generation=3, batch=9))))
    assert [(move.job_id, move.generation, move.to_nodes) for move in journal.moves()] == [
        ("a", 2, 1),
        ("b", 1, 3),
        ("a", 3, 2),
    ]


def test_a_journal_that_is_only_being_made_is_not_read(path):
    path.parent.mkdir()
    path.touch()
    with pytest.raises(NotFound, match="only being made"):
        Journal.read(path)


def test_only_its_owner_reads_a_journal(path):
    opened(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_second_writer_is_told_who_the_first_is(path):
    with opened(path), pytest.raises(Failed, match=rf"another onesd \(process {os.getpid()}\)"):
        Journal.open(path)
    Journal.open(path).close()


def test_a_writer_that_is_killed_lets_the_next_one_in_and_leaves_whole_ticks(path):
    script = f"""
        import sys
        sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
        from test_journal import *
        journal = opened(pathlib.Path({str(path)!r}))
        for number in range(1, 100000):
            journal.record(tick(number, decision(Rebatch(job_id="a", generation=number + 1, batch=64))))
            print(number, flush=True)
    """
    writer = subprocess.Popen(
        [sys.executable, "-c", "import pathlib\n" + textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    told = 0
    for line in writer.stdout:
        told = int(line)
        if told == 20:
            with Journal.read(path) as reader:
                assert reader.last_tick() >= 20, "a reader sees what is written while the writer lives"
            writer.send_signal(signal.SIGKILL)
            break
    told = max([told, *map(int, writer.stdout.read().split())])
    writer.wait()
    writer.stdout.close()
    with Journal.open(path) as journal:
        assert journal.last_tick() >= told
        assert len(journal.unfinished_actions()) == journal.last_tick()
        assert sum(1 for _ in journal.recorded_ticks()) == journal.last_tick()


def test_a_reader_needs_no_right_to_write(path):
    opened(path).close()
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with Journal.read(path) as reader:
            assert reader.last_tick() == 0
    finally:
        path.parent.chmod(stat.S_IRWXU)


def test_no_journal_a_newer_one_and_no_journal_at_all_are_told_apart(path, tmp_path):
    with pytest.raises(NotFound, match="there is no journal"):
        Journal.read(path)
    opened(path).close()
    db = sqlite3.connect(path)
    db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(Failed, match="version 99"):
        Journal.read(path)
    with pytest.raises(Failed, match="version 99"):
        Journal.open(path)
    other = tmp_path / "text.db"
    other.write_text("this is no database, but long enough to be looked at" * 100)
    with pytest.raises(Failed, match="cannot use the journal"):
        Journal.open(other)


@pytest.mark.parametrize("version", range(1, len(schema.VERSIONS) + 1))
def test_a_journal_of_any_version_is_read_as_it_is_and_lifted_by_the_writer(path, version):
    path.parent.mkdir()
    db = sqlite3.connect(path)
    for script in schema.VERSIONS[:version]:
        db.executescript(script)
    db.execute(f"pragma user_version = {version}")
    db.execute("insert into events values (7.0, 'a', 'it happened')")
    db.commit()
    db.close()
    for way in (Journal.read, Journal.open):
        with way(path) as journal:
            assert [line.reason for line in journal.story("a")] == ["it happened"]
            assert (journal.points("a"), journal.past(5)) == ([], ())


def test_a_full_disk_refuses_the_whole_tick(path):
    journal = opened(path)
    journal.record(tick(1))
    journal._db.execute("pragma max_page_count = 1")
    large = decision(Rebatch(job_id="a", generation=2, batch=1), reason="x" * 500_000)
    with pytest.raises(Failed, match="full"):
        journal.record(tick(2, large))
    assert journal.last_tick() == 1
    assert journal.unfinished_actions() == []
    assert journal.story("a") == []
    journal.close()


def test_old_views_are_dropped_and_decisions_stay(path):
    journal = opened(path)
    for number in (1, 2, 3):
        journal.record(tick(number, decision(reason=f"r{number}")))
    assert journal.prune(1003.0) == 2
    assert [recorded.tick for recorded in journal.recorded_ticks()] == [3]
    assert len(journal.story("a")) == 3


def test_equal_plans_have_equal_bytes_whatever_the_order_of_their_numbers():
    one = Plan((Target(job_id="a", nodes=1, numbers={"x": 1.0, "y": 0.1 + 0.2}),))
    two = Plan((Target(job_id="a", nodes=1, numbers={"y": 0.1 + 0.2, "x": 1.0}),))
    assert encode_plan(one) == encode_plan(two)
    assert decode_plan(encode_plan(one)) == one


def test_the_last_decisions_are_moves_with_their_end_and_words_the_newest_first(path):
    shrink = Shrink(job_id="1", generation=1, keep=("n1",), batch=64, reason="2 waits")
    with Journal.open(path) as journal:
        journal.begin_run(Run(policy="equal", seed=1), 0.0)
        journal.record(tick(1, Decision(job_id="2", reason="waits", action=None)))
        journal.record(tick(2, Decision(job_id="1", reason="2 waits", action=shrink)))
        journal.record(tick(3, Decision(job_id="1", reason="a shrink is under way", action=None)))
        journal.record(tick(4, Decision(job_id="2", reason="still waits", action=None)))
        journal.end(Outcome("1", 1, Status.DONE, "trains on"), 1005.0)
        told = [(one.job_id, one.kind, one.to_nodes, one.outcome, one.reason) for one in journal.recent(2)]
    assert told == [
        ("2", None, None, None, "still waits"),
        ("1", None, None, None, "a shrink is under way"),
        ("1", "shrink", 1, Status.DONE, "2 waits"),
    ]
