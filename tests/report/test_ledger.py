"""The ledger: the same whatever the order, the pieces and the number of readings; and it asks Slurm for little."""

import contextlib
import random
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from accounting_rows import row
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ones_slurm.cli.main import ones
from ones_slurm.engine.journal import Journal
from ones_slurm.model.errors import Failed, NotFound
from ones_slurm.report.dump import Saved, read_dump
from ones_slurm.report.figures import job_figures
from ones_slurm.report.ledger import Ledger
from ones_slurm.report.refresh import OVERLAP_S, refresh
from ones_slurm.report.segments import histories
from ones_slurm.report.selection import Selection

DATA = Path(__file__).parent / "data"
C1, C2, C4 = ("c1",), ("c1", "c2"), ("c1", "c2", "c3", "c4")
STATES = ("PENDING", "RUNNING", "RESIZING", "REQUEUED", "NODE_FAIL", "COMPLETED", "CANCELLED", "SOMETHING_NEW")


def dumped(path):
    """All that is in a ledger file, as text."""
    with Ledger.open(path) as ledger:
        return "\n".join(ledger._db.iterdump())


@st.composite
def unruly_rows(draw):
    """Rows as no Slurm writes them: any times in any order, some of them twice, some of jobs that never end."""
    moment = st.integers(0, 300) | st.none()
    return [
        row(
            draw(st.sampled_from(["1", "2", "3_1", "3_[2-4]", "5+0"])),
            state=draw(st.sampled_from(STATES)),
            submit=draw(st.integers(0, 200)),
            start=draw(moment),
            end=draw(moment),
            nodes=draw(st.sampled_from([(), C1, C2])),
            gpus=draw(st.sampled_from([None, 2, 4])),
            tres_nodes=draw(st.sampled_from([None, 1, 2])),
            time_limit_s=draw(st.sampled_from([None, 60.0])),
            comment=draw(st.sampled_from(["", "", "ones:companion-of=1", "ones:companion-of=9", "ones:nodes=1-2"])),
        )
        for _ in range(draw(st.integers(1, 8)))
    ]


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5", "26.05.5"])
def test_it_tells_what_the_rows_tell_in_any_order(release):
    dump = read_dump(DATA / f"sacct-{release}.psv")
    rows = list(dump.rows)
    random.Random(1).shuffle(rows)
    with Ledger.open(None) as ledger:
        for first in range(0, len(rows), 5):
            ledger.take(rows[first : first + 5], read_s=dump.last_s)
        assert ledger.histories(Selection()) == histories(dump.rows, now_s=dump.last_s)


@settings(deadline=None, max_examples=40)
@given(unruly_rows(), st.randoms())
def test_unruly_rows_in_any_order_and_number_come_to_the_same(rows, chance):
    again = [*rows, *chance.sample(rows, k=len(rows) // 2)]
    chance.shuffle(again)
    cut = chance.randrange(len(again) + 1)
    with Ledger.open(None) as once, Ledger.open(None) as often:
        once.take(rows, read_s=400)
        for piece in (again[:cut], again[cut:], rows):
            often.take(piece, read_s=400)
        told = once.histories(Selection())
        assert often.histories(Selection()) == told
        groups, days = once.groups(Selection(), "user"), once.groups(Selection(), "day")
    assert {job.job_id for job in told} | {"1", "2", "3_1", "3_[2-4]", "5+0"} == {"1", "2", "3_1", "3_[2-4]", "5+0"}
    for job in told:
        spans = [(segment.start_s, segment.end_s) for segment in job.segments if segment.start_s is not None]
        assert all(begin <= end for begin, end in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), "nothing counts twice"
    assert sum(group.jobs for group in groups) == len(told), "no job is dropped"
    figures = [job_figures(job) for job in told]
    for name in ("gpu_s", "restart_gpu_s", "wait_s"):
        counted = sum(getattr(job, name) for job in figures)
        assert sum(getattr(group, name) for group in groups) == counted, name
        assert sum(getattr(group, name) for group in days) == counted, name


def test_reading_a_file_again_changes_nothing(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        assert ledger.take_saved(Saved(DATA / "sacct-26.05.5.psv")).new > 10
    before = dumped(path)
    with Ledger.open(path) as ledger:
        taken = ledger.take_saved(Saved(DATA / "sacct-26.05.5.psv"))
        assert (taken.rows, taken.new, taken.changed) == (0, 0, 0)
        rows = read_dump(DATA / "sacct-26.05.5.psv").rows
        taken = ledger.take(rows, read_s=0.0)
        assert (taken.rows, taken.new, taken.changed) == (len(rows), 0, 0)
    assert dumped(path) == before


def test_an_old_reading_does_not_undo_a_newer_one():
    ended = row(state="COMPLETED", submit=0, start=5, end=60, nodes=C2, gpus=4)
    running = row(state="RUNNING", submit=0, start=5, nodes=C2, gpus=4)
    for order in ([ended, running], [running, ended]):
        with Ledger.open(None) as ledger:
            for reading in order:
                ledger.take([reading], read_s=100)
            ((job,), rows) = ledger.histories(Selection()), ledger.rows(Selection())
        assert (job.segments[0].end_s, len(rows)) == (60, 1)


def test_a_crash_in_the_middle_leaves_the_ledger_as_it_was(tmp_path):
    def breaks_off():
        yield row("1", submit=0, start=0, end=9, nodes=C1, gpus=2)
        raise RuntimeError("the power is gone")

    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.take([row("7", submit=0, start=0, end=9, nodes=C1, gpus=2)], read_s=10)
        with pytest.raises(RuntimeError):
            ledger.take(breaks_off(), read_s=20)
        assert [job.job_id for job in ledger.histories(Selection())] == ["7"]
        assert ledger.until_s == 10


def test_a_companion_is_a_part_of_its_base():
    rows = [
        row("1", submit=0, start=10, end=100, nodes=C2, gpus=4, comment="ones:nodes=1-4"),
        row("8", submit=20, start=30, end=70, nodes=("c3", "c4"), gpus=4, comment="ones:companion-of=1"),
    ]
    with Ledger.open(None) as ledger:
        ledger.take(rows[1:], read_s=50)
        assert [job.job_id for job in ledger.histories(Selection())] == ["8"], "its base is not known yet"
        ledger.take(rows[:1], read_s=100)
        (job,) = ledger.histories(Selection())
        assert ledger.histories(Selection(job_ids=("8",))) == [job]
        (group,) = ledger.groups(Selection(), "user")
    told = [(s.start_s, s.end_s, s.gpus, s.nodes, s.companions, s.ended_by) for s in job.segments]
    assert told == [
        (10, 30, 4, C2, (), "RESIZED"),
        (30, 70, 8, C4, ("8",), "RESIZED"),
        (70, 100, 4, C2, (), "COMPLETED"),
    ]
    assert [segment.wait_s for segment in job.segments] == [10, 0, 0]
    assert (group.jobs, group.gpu_s) == (1, 4 * 90 + 4 * 40)


def test_nobody_can_put_a_job_under_that_of_somebody_else():
    rows = [
        row("1", submit=0, start=0, end=50, nodes=C2, gpus=4),
        row("8", submit=0, start=0, end=50, nodes=C1, gpus=2, user="user2", comment="ones:companion-of=1"),
    ]
    with Ledger.open(None) as ledger:
        ledger.take(rows, read_s=50)
        assert [(job.job_id, job.segments[0].gpus) for job in ledger.histories(Selection())] == [("1", 4), ("8", 2)]


def test_a_job_that_never_ends_is_counted_to_its_limit_and_named():
    lost = row("1", state="RUNNING", submit=0, start=0, nodes=C1, gpus=2, time_limit_s=600.0)
    with Ledger.open(None) as ledger:
        ledger.take([lost], read_s=90_000)
        (job,) = ledger.histories(Selection(), now_s=80_000)
        assert (job.segments[0].open, job.segments[0].end_s) == (True, 80_000), "it may still run"
        (job,) = ledger.histories(Selection())
        (group,) = ledger.groups(Selection(), "user")
    assert (job.segments[0].ended_by, job.segments[0].end_s, group.gpu_s) == ("RUNAWAY", 600, 1200)
    assert [oddity.kind for oddity in job.oddities] == ["runaway"]


def test_gpus_that_slurm_does_not_count_follow_the_site_file(tmp_path):
    with Ledger.open(tmp_path / "l", gpus_per_node={"v100": 2}) as ledger:
        ledger.take([row(submit=0, start=0, end=10, nodes=C2, gpus=None)], read_s=10)
        assert ledger.histories(Selection())[0].segments[0].gpus == 4
    with Ledger.open(tmp_path / "l", gpus_per_node={"v100": 8}) as ledger:
        assert ledger.histories(Selection())[0].segments[0].gpus == 16


def test_sums_of_days_are_those_of_the_week_and_count_only_what_lies_in_it():
    day_s = 86400
    rows = [
        row(str(n), submit=n * day_s, start=n * day_s, end=n * day_s + 2 * day_s, nodes=C1, gpus=2) for n in range(9)
    ]
    week = Selection(since_s=2 * day_s, until_s=6 * day_s)
    with Ledger.open(None) as ledger:
        ledger.take(rows, read_s=20 * day_s)
        days, (all_of_it,) = ledger.groups(week, "day"), ledger.groups(week, "user")
    assert all_of_it.gpu_s == 2 * 2 * 4 * day_s, "two jobs at a time for four days"
    assert sum(group.gpu_s for group in days) == all_of_it.gpu_s
    assert sum(group.finished for group in days) == all_of_it.finished
    assert [group.use for group in (*days, all_of_it)] == [1.0] * (len(days) + 1), "two jobs at a time, never more"


class Accounting:
    """A Slurm whose sacct leaves out what ended before the window; it remembers what it was asked."""

    def __init__(self, *rows):
        self.rows, self.asked = list(rows), []

    def accounting(self, *, since_s, until_s=None, job_ids=(), user=None):
        self.asked.append((since_s, until_s, tuple(job_ids), user))
        return [
            row
            for row in self.rows
            if (not job_ids or row.job_id.partition("_")[0] in job_ids)
            and user in (None, row.user)
            and (row.end_s is None or row.end_s >= since_s)
            and (until_s is None or row.submit_s <= until_s)
        ]


def at(hours):
    return int(hours * 3600)


FIRST = row("1", state="RESIZING", submit=at(100), start=at(100), end=at(150), nodes=C2, gpus=4)
SECOND = row("1", submit=at(150), start=at(150), end=at(201), nodes=C1, gpus=2)
THIRD = row("2", state="RUNNING", submit=at(190), start=at(191), nodes=C1, gpus=2)
TODAY = Selection(since_s=at(180), users=("user1",))


def test_a_live_report_asks_once_for_what_it_has_and_again_for_what_is_new():
    slurm = Accounting(FIRST, SECOND, THIRD)
    with Ledger.open(None) as ledger:
        refresh(ledger, slurm, TODAY, now_s=at(210))
        assert slurm.asked == [(at(180), None, (), "user1"), (0, None, ("1", "2"), "user1")]
        assert [len(job.segments) for job in ledger.histories(TODAY)] == [2, 1], "with the rows before the window"
        slurm.asked.clear()
        slurm.rows.append(row("3", submit=at(211), start=at(211), end=at(212), nodes=C1, gpus=2))
        refresh(ledger, slurm, TODAY, now_s=at(214))
        assert slurm.asked == [(at(210) - OVERLAP_S, None, (), "user1")]
        assert [job.job_id for job in ledger.histories(TODAY)] == ["1", "2", "3"]
        slurm.asked.clear()
        refresh(ledger, slurm, Selection(since_s=at(200), until_s=at(205), users=("user1",)), now_s=at(215))
        assert slurm.asked == [], "all of that is known"


def test_an_end_that_was_told_late_is_asked_for():
    slurm = Accounting(THIRD)
    with Ledger.open(None) as ledger:
        refresh(ledger, slurm, TODAY, now_s=at(210))
        slurm.rows = [row("2", submit=at(190), start=at(191), end=at(195), nodes=C1, gpus=2)]
        refresh(ledger, slurm, TODAY, now_s=at(400))
        (job,) = ledger.histories(Selection())
    assert job.segments[0].end_s == at(195)
    assert slurm.asked[-1] == (0, None, ("2",), "user1")


def test_a_job_that_is_asked_for_brings_its_companions():
    base = row("1", submit=0, start=0, end=100, nodes=C1, gpus=2, comment="ones:nodes=1-2")
    lent = row("8", submit=10, start=20, end=50, nodes=("c3",), gpus=2, comment="ones:companion-of=1")
    with Ledger.open(None) as ledger:
        refresh(ledger, Accounting(base, lent), Selection(job_ids=("1",)), now_s=200)
        (job,) = ledger.histories(Selection(job_ids=("1",)))
    assert [segment.gpus for segment in job.segments] == [2, 4, 2]


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "x").write_text("not a database, and long enough to be seen as none " * 20)
    with pytest.raises(Failed, match="cannot use the ledger"):
        Ledger.open(tmp_path / "x")
    with pytest.raises(NotFound, match="no ledger"):
        Ledger.read(tmp_path / "nothing")


BROKEN = {
    "cut in the middle": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "cut in its first page": lambda path: path.write_bytes(path.read_bytes()[:2048]),
    "garbage behind the first page": lambda path: path.write_bytes(
        path.read_bytes()[:4096] + random.Random(1).randbytes(path.stat().st_size - 4096)
    ),
    "text": lambda path: path.write_text("JobID|State\n" * 1000),
    "without a table": lambda path: changed(path, "drop table segments"),
    "with another column": lambda path: changed(path, "alter table segments rename column gpus to cards"),
    "of a later version": lambda path: changed(path, "pragma user_version = 99"),
}


def changed(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.mark.parametrize("how", BROKEN)
def test_a_malformed_ledger_is_named_with_what_is_to_be_done(tmp_path, how):
    path, dump = tmp_path / "ledger.sqlite", DATA / "sacct-22.05.8.psv"
    with Ledger.open(path, gpus_per_node={"gpu": 4}) as ledger:
        ledger.take_saved(Saved(dump))
    BROKEN[how](path)
    before = path.read_bytes()
    said = CliRunner().invoke(ones, ["report", "--from", str(dump), "--ledger", str(path), "-S", "now-9999days"])
    asked = CliRunner().invoke(ones, ["report", "--ledger", str(path), "-a", "-S", "now-9999days"])
    for answer in (said, asked):
        assert answer.exit_code == 1, answer.output
        assert f"ledger {path}" in answer.stderr
        assert "delete it" in answer.stderr
        assert "read again from accounting" in answer.stderr
        assert "Traceback" not in answer.stderr
    assert path.read_bytes() == before


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(Failed, match="cannot use the ledger") as told:
        Ledger.open(tmp_path)
    assert "no file" in told.value.hint


def test_a_database_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "journal.sqlite"
    with Journal.open(path) as journal:
        journal.event(1.0, "something")
    before = path.read_bytes()
    with pytest.raises(Failed, match="is no ledger"):
        Ledger.open(path)
    assert path.read_bytes() == before
