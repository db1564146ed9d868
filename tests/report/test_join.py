"""Accounting and a real journal together."""

from accounting_rows import row

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.plan import Plan
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.report.ledger import Ledger
from ones_slurm.report.selection import Selection

C1, C3 = ("c1",), ("c1", "c2", "c3")


def job(state, submit_s, start_s, nodes, batch=0):
    return JobView(
        job_id="1",
        user="user1",
        state=state,
        asked_nodes=3,
        gpus_per_node=2,
        nodes=nodes,
        wish=Wish(nodes=Bounds(1, 3)),
        batch=batch,
        submit_s=submit_s,
        start_s=start_s,
    )


def test_what_was_seen_puts_back_what_accounting_lost(tmp_path):
    seen = [
        (11, job(JobState.RUNNING, 5.0, 10.0, C3)),
        (20, job(JobState.RUNNING, 5.0, 10.0, C3, batch=64)),
        (31, job(JobState.RUNNING, 5.0, 10.0, C1, batch=64)),
        (41, job(JobState.ENDING, 5.0, 40.0, C1, batch=64)),
        (46, job(JobState.PENDING, 45.0, None, ())),
        (51, job(JobState.RUNNING, 45.0, 50.0, C3, batch=96)),
    ]
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        journal.begin_run(Run(policy="equal", seed=1), 0.0)
        for number, (now_s, view) in enumerate(seen, 1):
            cluster = ClusterView(float(now_s), (), (view,))
            journal.record(
                Tick(
                    tick=number,
                    now_s=float(now_s),
                    took_s=0.0,
                    view=cluster,
                    plan=Plan(),
                    memory=Memory(),
                    decisions=(),
                )
            )
        rows = [
            row(state="RESIZING", submit=5, start=10, end=30, nodes=C3, gpus=6, tres_nodes=3),
            row(state="COMPLETED", submit=30, start=30, end=70, nodes=C1, gpus=6, tres_nodes=3),
            row("2", submit=5, start=5, end=6, nodes=C1, gpus=2),
        ]
        with Ledger.open(None) as ledger:
            ledger.take(rows, read_s=100)
            ledger.learn(journal, ["1"], now_s=100)
            moved, other = ledger.histories(Selection())
    assert (other.job_id, other.warnings) == ("2", ())
    assert [(s.start_s, s.end_s, s.gpus, s.batch, s.ended_by) for s in moved.segments] == [
        (10, 30, 6, 64, "RESIZED"),
        (30, 45, 2, 64, "REQUEUED"),
        (50, 70, 6, 96, "COMPLETED"),
    ]
    assert moved.warnings == ("accounting lost runs of it that followed a resize: they are told from the journal",)
