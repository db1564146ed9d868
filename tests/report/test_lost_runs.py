"""Runs that Slurm 22.05.8 loses after a resize: rows as its sacct printed them, with seconds in place of dates.

The job held c1-3 from 32, was shrunk to c1 at 35, requeued at 38 and ran with c1-3 from 40, was shrunk to c1-2 at 43,
requeued at 46, ran with c1 from 48, was requeued at 51, ran with c1-3 from 53 and was cancelled at 56.
"""

import pytest
from accounting_rows import row

from ones_slurm.engine.records import Holding
from ones_slurm.report.lost_runs import with_lost_runs
from ones_slurm.report.segments import histories

C1, C2, C3 = ("c1",), ("c1", "c2"), ("c1", "c2", "c3")


def holding(submit_s, start_s, nodes, seen_s):
    return Holding(
        job_id="1", submit_s=submit_s, nodes=nodes, gpus=2 * len(nodes), batch=0, start_s=start_s, seen_s=seen_s
    )


SEEN = [
    holding(29, 32, C3, 32.4),
    holding(29, 32, C1, 35.8),
    holding(38, 40, C3, 40.4),
    holding(38, 40, C2, 43.6),
    holding(46, 48, C1, 48.7),
    holding(51, 53, C3, 53.2),
]
FIRST = row(state="RESIZING", submit=29, start=32, end=35, nodes=C3, gpus=6, tres_nodes=3)
SECOND = row(state="REQUEUED", submit=35, start=35, end=38, nodes=C1, gpus=2, tres_nodes=1)


def spans(rows, seen, now_s):
    (job,) = histories(with_lost_runs(rows, seen), now_s=now_s)
    return [(s.start_s, s.end_s, s.nnodes, s.gpus, s.ended_by) for s in job.segments]


TO_THE_END = [
    (32, 35, 3, 6, "RESIZED"),
    (35, 38, 1, 2, "REQUEUED"),
    (40, 43, 3, 6, "RESIZED"),
    (43, 46, 2, 4, "REQUEUED"),
    (48, 51, 1, 2, "REQUEUED"),
    (53, 56, 3, 6, "CANCELLED"),
]
# What accounting had at four moments, how many of the runs the journal had seen by then, and what really was.
MOMENTS = {
    "running after a lost requeue": (
        [FIRST, SECOND],
        3,
        42,
        [*TO_THE_END[:2], (40, 42, 3, 6, "RUNNING")],
    ),
    "shrunk after it": (
        [FIRST, SECOND, row(state="RESIZING", submit=43, start=43, end=43, nodes=C2, gpus=4, tres_nodes=2)],
        4,
        45,
        [*TO_THE_END[:3], (43, 45, 2, 4, "RUNNING")],
    ),
    "waiting after a second lost requeue": (
        [
            FIRST,
            SECOND,
            row(state="REQUEUED", submit=43, start=43, end=51, nodes=C2, gpus=2, tres_nodes=1),
            row(state="PENDING", submit=46, start=48, nodes=C1),
        ],
        5,
        52,
        TO_THE_END[:5],
    ),
    "over": (
        [
            FIRST,
            SECOND,
            row(state="CANCELLED", submit=43, start=43, end=56, nodes=C2, gpus=6, tres_nodes=3, cancelled_by="61001"),
            row(state="PENDING", submit=46, start=48, nodes=C1),
        ],
        6,
        1000,
        TO_THE_END,
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_journal_puts_lost_runs_back(moment):
    rows, seen, now_s, really = MOMENTS[moment]
    assert spans(rows, SEEN[:seen], now_s) == really
    assert spans(rows[::-1], SEEN[:seen], now_s) == really


def test_a_job_that_ends_right_after_one_lost_requeue():
    rows = [FIRST, row(submit=35, start=35, end=48, nodes=C1, gpus=6, tres_nodes=3, exit_status=0)]
    assert spans(rows, SEEN[:3], 1000) == [
        (32, 35, 3, 6, "RESIZED"),
        (35, 38, 1, 2, "REQUEUED"),
        (40, 48, 3, 6, "COMPLETED"),
    ]


def test_accounting_that_lost_nothing_is_left_as_it_is():
    rows = [FIRST, SECOND, row(submit=38, start=40, end=50, nodes=C3, gpus=6)]
    assert with_lost_runs(rows, SEEN[:3]) == rows
    assert with_lost_runs(rows, []) == rows


def test_what_an_earlier_job_of_the_same_id_held_does_not_matter():
    rows = [row(submit=500, start=500, end=600, nodes=C3, gpus=6)]
    assert with_lost_runs(rows, SEEN) == rows
