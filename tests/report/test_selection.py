"""Which jobs a report is about."""

import pytest
from accounting_rows import row

from ones_slurm.report.ledger import Ledger
from ones_slurm.report.selection import Selection

C2 = ("c1", "c2")
ROWS = [
    row("1", state="RESIZING", submit=0, start=0, end=50, nodes=C2),
    row("1", submit=50, start=0, end=100, nodes=C2),
    row("2_1", raw_id="3", submit=10, start=300, end=400, nodes=C2, account="physics"),
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
    with Ledger.open(None) as ledger:
        ledger.take(ROWS, read_s=1000)
        taken = ledger.histories(selection)
        assert ledger.count(selection) == len(taken)
        assert {row.job_id for row in ledger.rows(selection)} == found
    assert {job.job_id for job in taken} == found
    assert all(len(job.segments) == 2 for job in taken if job.job_id == "1"), "a job comes with its earlier rows"
