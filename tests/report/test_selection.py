"""Which jobs a report is about."""

import pytest
from accounting_rows import row

from ones_slurm.report.selection import Selection, read_rows

C2 = ("c1", "c2")
ROWS = [
    row("1", state="RESIZING", submit=0, start=0, end=50, nodes=C2),
    row("1", submit=50, start=0, end=100, nodes=C2),
    row("2_1", raw_id="2", submit=10, start=300, end=400, nodes=C2, account="physics"),
    row("2_[2-9]", raw_id="2", state="PENDING", submit=10, partition="v100,other"),
    row("4+1", raw_id="5", submit=10, start=20, end=30, user="user2", partition="other"),
]


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection(), {"1", "2_1", "2_[2-9]", "4+1"}),
        (Selection(since_s=60), {"1", "2_1", "2_[2-9]"}),
        (Selection(since_s=500), {"2_[2-9]"}),
        (Selection(until_s=5), {"1"}),
        (Selection(users=("user2",)), {"4+1"}),
        (Selection(accounts=("physics", "nosuch")), {"2_1"}),
        (Selection(partitions=("other",)), {"2_[2-9]", "4+1"}),
        (Selection(job_ids=("2",)), {"2_1", "2_[2-9]"}),
        (Selection(job_ids=("2_1", "4")), {"2_1", "4+1"}),
        (Selection(job_ids=("5",)), {"4+1"}),
    ],
)
def test_a_selection_takes_whole_jobs(selection, found):
    taken = selection.of(ROWS)
    assert {row.job_id for row in taken} == found
    assert len([row for row in taken if row.job_id == "1"]) in {0, 2}, "a job comes with its earlier rows or not at all"


class Accounting:
    """A Slurm that leaves out what ended before the window, as sacct does."""

    def __init__(self):
        self.asked = []

    def accounting(self, *, since_s, until_s=None, job_ids=(), user=None):
        self.asked.append((since_s, tuple(job_ids), user))
        wanted = Selection(job_ids=tuple(job_ids), users=(user,) if user else ())
        return [row for row in ROWS if wanted.takes(row) and (row.end_s is None or row.end_s >= since_s)]


def test_rows_that_lie_before_the_window_are_fetched_as_well():
    slurm = Accounting()
    rows = read_rows(slurm, Selection(since_s=60, until_s=200, users=("user1",)))
    assert [row.end_s for row in rows if row.job_id == "1"] == [50, 100]
    assert slurm.asked == [(60, (), "user1"), (0, ("1", "2"), "user1")]


def test_nothing_in_the_window_asks_no_second_time():
    slurm = Accounting()
    assert read_rows(slurm, Selection(since_s=60, users=("nobody",))) == []
    assert len(slurm.asked) == 1
