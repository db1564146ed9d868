"""What `onesd` tells a report about jobs, asked through a real door: each job once, and none again when it is over."""

import pytest
from accounting_rows import row
from desk import open_door

from ones_slurm.cli.books import learn
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.plan import Plan
from ones_slurm.model.settings import Daemon
from ones_slurm.report.ledger import Ledger
from ones_slurm.report.selection import Selection

WISH = "ones:nodes=1-4"


@pytest.fixture
def ledger():
    with Ledger.open(None) as opened:
        rows = [
            row("11", submit=0, start=0, end=100, nodes=("n0", "n1"), gpus=4, comment=WISH),
            row("10", submit=0, start=0, end=100, nodes=("n0", "n1"), gpus=4, comment=WISH),
            row("9", submit=0, start=0, end=100, nodes=("n0", "n1"), gpus=4),
        ]
        opened.take(rows, read_s=10_000)
        yield opened


def test_of_jobs_with_a_wish_onesd_is_asked_once(ledger):
    with open_door({"11": "root"}, auth="socket") as place:
        with Journal.open(place.daemon.journal) as journal:
            journal.begin_run(Run(policy="equal", seed=1), 0.0)
            view = place.latest.view
            journal.record(Tick(tick=1, now_s=1.0, took_s=0.1, view=view, plan=Plan(), memory=Memory(), decisions=()))
        learn(ledger, Selection(), place.daemon, None, may_ask=True)
    told = {job.job_id: job.segments[0].samples for job in ledger.histories(Selection())}
    assert told == {"11": 0, "10": None, "9": None}, "from one word nobody knows how far it came meanwhile"
    assert [(point.samples, point.batch) for point in ledger.points("11")] == [(25, 64)]
    assert ledger.unsettled(Selection()) == [("9", False)], "what onesd does not know is not asked again either"


def test_a_silent_onesd_is_asked_no_second_time_and_said_so(ledger, tmp_path, capsys):
    daemon = Daemon(auth="socket", socket=str(tmp_path / "none.sock"))
    learn(ledger, Selection(), daemon, None, may_ask=True)
    assert capsys.readouterr().err.count("no batches and moves, for onesd does not answer") == 1
    assert len(ledger.unsettled(Selection())) == 3, "it may answer next time"
