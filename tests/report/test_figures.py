"""Figures of a job and of many, worked out by hand."""

from fractions import Fraction

from accounting_rows import row

from ones_slurm.report.figures import gpu_hours, job_figures, totals
from ones_slurm.report.segments import histories

C4 = ("c1", "c2", "c3", "c4")


def figures(*rows, now_s=1000):
    return [job_figures(job) for job in histories(rows, now_s=now_s)]


def test_a_job_that_was_resized_and_requeued():
    (job,) = figures(
        row(state="RESIZING", submit=0, start=20, end=60, nodes=C4, gpus=8),
        row(state="REQUEUED", submit=60, start=60, end=100, nodes=C4[:2], gpus=4),
        row(submit=105, start=130, end=200, nodes=C4, gpus=8),
    )
    assert job.completion_s == 200
    assert job.wait_s == 20 + 25
    assert job.gpu_s == 8 * 40 + 4 * 40 + 8 * 70
    assert job.restart_gpu_s == 4 * 5
    assert (job.moves, job.interruptions, job.state) == (2, 0, "COMPLETED")


def test_a_resize_that_changed_no_node_is_no_move():
    (job,) = figures(
        row(state="RESIZING", submit=0, start=0, end=60, nodes=C4, gpus=8),
        row(submit=60, start=60, end=100, nodes=C4, gpus=8),
    )
    assert (job.moves, job.gpu_s) == (0, 800)


def test_a_lost_node_interrupts_and_is_no_move():
    (job,) = figures(
        row(state="NODE_FAIL", submit=0, start=0, end=60, nodes=C4, gpus=8),
        row(submit=60, start=60, end=100, nodes=C4, gpus=8),
    )
    assert (job.moves, job.interruptions) == (0, 1)


def test_totals_add_up_and_average_only_what_is_over():
    total = totals(
        figures(
            row("1", submit=0, start=0, end=100, nodes=C4, gpus=4),
            row("2", submit=0, start=50, end=201, nodes=C4, gpus=2),
            row("3", state="RUNNING", submit=0, start=10, nodes=C4, gpus=1),
        )
    )
    assert (total.jobs, total.finished, total.mean_completion_s) == (3, 2, Fraction(301, 2))
    assert total.gpu_s == 400 + 302 + 990
    assert total.wait_s == 60


def test_hours_are_exact():
    assert sum(gpu_hours(1) for _ in range(3600)) == 1
