"""What a journal saw, as accounting would have told it; and each kind of file is known for what it is."""

import msgspec
import pytest

from ones_slurm.engine.journal import Journal
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView
from ones_slurm.model.errors import Failed, NotFound, UsageError
from ones_slurm.model.wish import parse_wish
from ones_slurm.report.ledger import Ledger
from ones_slurm.report.segments import histories
from ones_slurm.study.past import read_past, rows_of_views

NODES = tuple(NodeView(name, 4, usable=True) for name in ("c1", "c2", "c3"))
WISH = parse_wish("ones:nodes=1-3,batch=64-256")


def job(job_id="1", *, nodes=(), start=None, submit=0.0, wish=WISH):
    state = JobState.RUNNING if nodes else JobState.PENDING
    return JobView(
        job_id=job_id,
        user="ada",
        state=state,
        asked_nodes=1,
        gpus_per_node=4,
        nodes=nodes,
        start_s=start,
        submit_s=submit,
        wish=wish,
    )


def seen(*looks):
    """The segments that follow from views: (second, jobs)."""
    views = [ClusterView(float(now_s), NODES, jobs) for now_s, jobs in looks]
    rows = list(rows_of_views(views))
    return [
        [(segment.start_s, segment.end_s, segment.nodes, segment.ended_by) for segment in told.segments]
        for told in histories(rows, now_s=views[-1].now_s)
    ], rows


def test_a_job_waits_runs_shrinks_is_requeued_and_ends():
    (told,), rows = seen(
        (10, (job(),)),
        (40, (job(nodes=("c1", "c2"), start=30.0),)),
        (70, (job(nodes=("c1",), start=30.0),)),
        (100, (job(submit=95.0),)),
        (130, (job(submit=95.0, nodes=("c2", "c3"), start=120.0),)),
        (160, ()),
    )
    assert told == [
        (30, 70, ("c1", "c2"), "RESIZED"),
        (70, 95, ("c1",), "REQUEUED"),
        (120, 160, ("c2", "c3"), "COMPLETED"),
    ]
    assert {parse_wish(row.comment) for row in rows} == {WISH}
    assert [row.gpus for row in rows] == [8, 4, 8]


def test_who_begins_on_its_nodes_tells_when_a_job_was_gone():
    (first, second), _ = seen(
        (60, (job("1", nodes=("c1",), start=10.0),)),
        (120, (job("2", nodes=("c1",), start=80.0, submit=1.0),)),
    )
    assert first == [(10, 80, ("c1",), "COMPLETED")]
    assert second[0][0] == 80


def test_nodes_that_are_cleaned_one_by_one_are_no_resize():
    ending = msgspec.structs.replace(job(nodes=("c2",), start=30.0), state=JobState.ENDING)
    (told,), _ = seen((40, (job(nodes=("c1", "c2"), start=30.0),)), (70, (ending,)), (75, ()))
    assert told == [(30, 75, ("c1", "c2"), "COMPLETED")]


def test_a_job_without_a_wish_stays_one_and_one_that_never_starts_is_no_run():
    told, rows = seen((10, (job("1", wish=None, nodes=("c1",), start=5.0), job("2", submit=6.0))), (20, ()))
    assert told[0] == [(5, 20, ("c1",), "COMPLETED")]
    assert told[1][0][0] is None
    assert rows[0].comment == ""


def test_each_kind_of_file_is_known(tmp_path):
    with Journal.open(tmp_path / "journal.sqlite"):
        pass
    with Ledger.open(tmp_path / "ledger.sqlite"):
        pass
    assert read_past(tmp_path / "journal.sqlite").rows == ()
    assert read_past(tmp_path / "ledger.sqlite").rows == ()
    (tmp_path / "text").write_text("JobID|State\n")
    with pytest.raises(UsageError, match="names no column"):
        read_past(tmp_path / "text")
    with pytest.raises(NotFound):
        read_past(tmp_path / "nothing")
    whole = (tmp_path / "journal.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Failed, match=r"cut\.sqlite"):
        read_past(tmp_path / "cut.sqlite")
