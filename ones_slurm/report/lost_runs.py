"""Runs that accounting lost, put back from what the journal saw.

Slurm 22.05.8, as seen on a live cluster: after a job was resized, a requeue opens no row of its own. The row of the
resize is shown REQUEUED while the job waits and runs again, and at the end it is written over: it keeps its Start and
NodeList, and takes the state, the End and the TRES of the last run. A second requeue leaves a row that is PENDING for
ever though it has a Start. Each requeue submits a job anew, so a run whose Submit no row has is one that was lost.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ones_slurm.engine.records import Holding
from ones_slurm.report.segments import FINAL, GOING_ON, RESTARTED
from ones_slurm.slurm.client import AccountingRow


def with_lost_runs(rows: Sequence[AccountingRow], holdings: Sequence[Holding]) -> list[AccountingRow]:
    """The rows of one job as accounting would have them if it lost nothing; unchanged where it has lost nothing.

    `holdings` are those of the same job, oldest first. Rows from before the first of them are kept as they are.
    """
    first_s = min((int(row.submit_s) for row in rows), default=0)
    runs = _runs(holding for holding in holdings if holding.submit_s >= first_s)  # ids may start again
    submits = {int(row.submit_s) for row in rows if row.state != "PENDING"}
    if all(int(run[0].submit_s) in submits for run in runs):
        return list(rows)
    newest = max(rows, key=lambda row: (row.end_s or 0.0, row.submit_s))
    rebuilt = [row for row in rows if row.submit_s < runs[0][0].submit_s]
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        starts = _starts(run, rows)
        leaves = [*starts[1:], _left_s(starts[-1], following, rows)]
        for number, (holding, start_s, end_s) in enumerate(zip(run, starts, leaves, strict=True)):
            last_size = number == len(run) - 1
            rebuilt.append(
                msgspec.structs.replace(
                    newest,
                    submit_s=holding.submit_s if number == 0 else start_s,
                    eligible_s=holding.submit_s if number == 0 else start_s,
                    start_s=start_s,
                    end_s=end_s,
                    nodes=holding.nodes,
                    nnodes=len(holding.nodes),
                    gpus=holding.gpus,
                    tres_nodes=len(holding.nodes),
                    state="RESIZING" if not last_size else "REQUEUED",
                    cancelled_by=None,
                    exit_status=0,
                    signal=0,
                )
            )
    return [*rebuilt[:-1], _last(rebuilt[-1], newest)]


def _runs(holdings: Iterable[Holding]) -> list[list[Holding]]:
    """Holdings by run, in order of time."""
    by_submit: dict[float, list[Holding]] = {}
    for holding in sorted(holdings, key=lambda holding: (holding.submit_s, holding.seen_s)):
        by_submit.setdefault(holding.submit_s, []).append(holding)
    return list(by_submit.values())


def _starts(run: Sequence[Holding], rows: Sequence[AccountingRow]) -> list[float]:
    """When each size of a run began: its first start, then the Submit that a resize gave a row, or when it was seen."""
    starts = [min(holding.start_s for holding in run)]
    for before, holding in pairwise(run):
        earliest_s = max(int(before.seen_s), starts[-1])
        resized = [row.submit_s for row in rows if earliest_s <= row.submit_s <= holding.seen_s]
        starts.append(max(resized, default=holding.seen_s))
    return starts


def _left_s(start_s: float, following: Sequence[Holding] | None, rows: Sequence[AccountingRow]) -> float | None:
    """When the last size of a run ended: at a requeue that some row still tells, else when the next was submitted."""
    if following is None:
        return None
    next_submit_s = following[0].submit_s
    told = [row.end_s for row in rows if row.end_s is not None and start_s < row.end_s <= next_submit_s]
    return max(told, default=next_submit_s)


def _last(run: AccountingRow, newest: AccountingRow) -> AccountingRow:
    """The last run with the end that accounting has for the job, if it has one."""
    ended = newest.state in FINAL | RESTARTED and newest.end_s is not None and newest.end_s > (run.start_s or 0.0)
    if not ended:
        state = newest.state if newest.state in GOING_ON else "RUNNING"
        return msgspec.structs.replace(run, state=state, end_s=None)
    return msgspec.structs.replace(
        run,
        state=newest.state,
        end_s=newest.end_s,
        cancelled_by=newest.cancelled_by,
        exit_status=newest.exit_status,
        signal=newest.signal,
    )
