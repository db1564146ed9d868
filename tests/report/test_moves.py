"""The journal's moves written into the segments of accounting."""

from accounting_rows import row

from ones_slurm.engine.records import Holding, MoveRow
from ones_slurm.model.plan import Status
from ones_slurm.report.figures import job_figures
from ones_slurm.report.moves import with_moves
from ones_slurm.report.segments import histories

C4 = ("c1", "c2", "c3", "c4")


def move(kind, sent_s, ended_s, batch, why="", *, outcome=Status.DONE):
    return MoveRow(
        job_id="1",
        generation=1,
        kind=kind,
        from_nodes=0,
        to_nodes=0,
        batch=batch,
        sent_s=sent_s,
        ended_s=ended_s,
        outcome=outcome,
        reason="",
        why=why,
    )


def moved_job():
    """Held c1-4, was shrunk to c1-2 at 60, requeued at 100, and ran again with c1-4 from 130 to 200."""
    rows = [
        row(state="RESIZING", submit=0, start=20, end=60, nodes=C4, gpus=4),
        row(state="REQUEUED", submit=60, start=60, end=100, nodes=C4[:2], gpus=2),
        row(submit=105, start=130, end=200, nodes=C4, gpus=4),
    ]
    return histories(rows, now_s=1000)[0]


def test_each_move_is_told_with_the_segment_that_it_began():
    moves = [
        move("start", 18.5, 21.0, 64, "it is alone"),
        move("shrink", 55.0, 62.5, 32, "another job arrived"),
        move("requeue", 97.0, 135.0, 128, "the other one left"),
    ]
    segments = with_moves(moved_job(), moves).segments
    assert [(segment.batch, segment.move, segment.reason) for segment in segments] == [
        (64, "start", "it is alone"),
        (32, "shrink", "another job arrived"),
        (128, "requeue", "the other one left"),
    ]


def test_a_change_of_batch_alone_cuts_a_segment_without_changing_the_sums():
    before = moved_job()
    after = with_moves(before, [move("start", 19, 21, 64), move("rebatch", 150.0, 160.2, 256, "it trains faster")])
    assert [(s.start_s, s.end_s, s.batch, s.ended_by) for s in after.segments] == [
        (20, 60, 64, "RESIZED"),
        (60, 100, 64, "REQUEUED"),
        (130, 160, 64, "REBATCHED"),
        (160, 200, 256, "COMPLETED"),
    ]
    assert after.segments[-1].reason == "it trains faster"
    figures, figures_before = job_figures(after), job_figures(before)
    assert (figures.gpu_s, figures.wait_s, figures.restart_gpu_s) == (
        figures_before.gpu_s,
        figures_before.wait_s,
        figures_before.restart_gpu_s,
    )
    assert (figures_before.moves, figures.moves) == (2, 3)


def test_somebody_elses_resize_is_not_explained_by_a_move_of_another_time():
    segments = with_moves(moved_job(), [move("shrink", 300, 310, 32)]).segments
    assert [segment.move for segment in segments] == ["", "", ""]
    assert [segment.batch for segment in segments] == [None, None, None]


def test_a_running_job_is_cut_and_goes_on():
    job = histories([row(state="RUNNING", submit=0, start=0, nodes=C4, gpus=4)], now_s=100)[0]
    cut = with_moves(job, [move("rebatch", 40, 50, 512)])
    assert [(s.end_s, s.open, s.batch) for s in cut.segments] == [(50, False, None), (100, True, 512)]


def test_a_move_that_failed_explains_the_segment_but_not_its_batch():
    moves = [move("start", 19, 21, 64), move("shrink", 55, 70, 32, "make room", outcome=Status.FAILED)]
    second = with_moves(moved_job(), moves).segments[1]
    assert (second.move, second.reason, second.batch) == ("shrink (failed)", "make room", 64)


def test_a_move_under_way_explains_what_it_has_begun():
    moves = [move("shrink", 55, None, 32, "make room", outcome=None)]
    assert [segment.move for segment in with_moves(moved_job(), moves).segments] == ["", "shrink", ""]


def test_a_move_that_was_refused_explains_nothing():
    moves = [move("shrink", 55, 61, 32, outcome=Status.REFUSED), move("rebatch", 140, 150, 32, outcome=Status.OBSERVED)]
    assert with_moves(moved_job(), moves) == moved_job()


def test_a_run_that_no_move_began_has_the_batch_that_the_job_named_itself():
    seen = [
        Holding(job_id="1", submit_s=0, nodes=C4, gpus=4, batch=64, start_s=20, seen_s=25.3),
        Holding(job_id="1", submit_s=0, nodes=C4[:2], gpus=2, batch=64, start_s=20, seen_s=63.1),
        Holding(job_id="1", submit_s=105, nodes=C4, gpus=4, batch=96, start_s=130, seen_s=150.0),
    ]
    segments = with_moves(moved_job(), [move("shrink", 55.0, 62.5, 32)], seen).segments
    assert [segment.batch for segment in segments] == [64, 32, 96]
