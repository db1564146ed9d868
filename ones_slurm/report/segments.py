"""From rows of accounting to what a job really held, and when: its *segments*, one for each size it had.

No row is trusted alone. Slurm closes a row at each resize and requeue and opens another; some releases give the new
row the job's first start again, or write the next size over the closed row. The rules below were each tried on Slurm
22.05, 24.11 and 26.05 and are explained to users in `docs/report.md`. Everything is whole seconds, which is what
accounting keeps, so that sums are exact.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from ones_slurm.slurm.client import AccountingRow

WAITING = frozenset({"PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"})
GOING_ON = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"})
# Those that a requeueable job may survive: it goes on in another row, under the same id.
RESTARTED = frozenset({"REQUEUED", "NODE_FAIL", "PREEMPTED"})
FINAL = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
        "LAUNCH_FAILED",
    }
)
KNOWN = WAITING | GOING_ON | RESTARTED | FINAL | {"RESIZING"}
# Ours: Slurm ends a job within minutes of its limit (KillWait, OverTimeLimit); what "runs" a day longer has ended, and
# accounting never heard of it. `sacctmgr show runawayjobs` calls them so.
RUNAWAY_AFTER_S = 86400
# Ours: hosts without NTP may differ by that much, and nobody minds.
CLOCKS_DIFFER_S = 60


class Oddity(msgspec.Struct, frozen=True):
    """Something odd about the rows of a job: `kind` to count by, `what` in words."""

    kind: str
    what: str


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time over which a job held the same nodes (and, where the journal knows it, had the same batch).

    Unix seconds. `start_s` is None when it never started; `open` says that it goes on and `end_s` is only now.
    `wait_since_s` is since when it waited for its start, None if it did not. `restart_cost_s` is how long its nodes
    stayed taken after its end, while Slurm cleaned up for the requeue. `ended_by` is Slurm's state word, or ours:
    RESIZED, MERGED, REBATCHED, RUNAWAY. `companions` are the Slurm jobs whose nodes are among `nodes` (see
    `companions.py`), `lent_gpus` of the `gpus` are theirs. `time_limit_s` is the limit of the job, None without one.

    The journal's, None without it: `batch` (samples of a global step), `samples` trained on meanwhile that were kept,
    `lost_samples` that were not, `startup_s` from its start until a move to it was done, `moving_s` under orders to
    become another, `efficiency` (what a sample at its batch was worth beside one at the base batch), and `bubble`, the
    idle share of its pipeline, by the job's own account.
    """

    job_id: str
    user: str
    account: str
    partition: str
    name: str
    submit_s: int
    start_s: int | None
    end_s: int
    open: bool
    nodes: tuple[str, ...]
    gpus: int
    wait_since_s: int | None
    ended_by: str
    ended_how: str = ""
    restart_cost_s: int = 0
    batch: int | None = None
    samples: int | None = None
    lost_samples: int | None = None
    startup_s: int | None = None
    moving_s: int | None = None
    efficiency: float | None = None
    bubble: float | None = None
    move: str = ""
    reason: str = ""
    companions: tuple[str, ...] = ()
    lent_gpus: int = 0
    time_limit_s: int | None = None

    @property
    def nnodes(self) -> int:
        """How many nodes it held."""
        return len(self.nodes)

    @property
    def wait_s(self) -> int:
        """The wait before it."""
        if self.wait_since_s is None:
            return 0
        return max((self.end_s if self.start_s is None else self.start_s) - self.wait_since_s, 0)

    @property
    def duration_s(self) -> int:
        """How long it held them."""
        return 0 if self.start_s is None else self.end_s - self.start_s

    @property
    def gpu_s(self) -> int:
        """GPU-seconds held while the job ran."""
        return self.gpus * self.duration_s

    @property
    def restart_gpu_s(self) -> int:
        """GPU-seconds for which nobody could use the nodes after a requeue."""
        return (self.gpus - self.lent_gpus) * self.restart_cost_s


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All segments of one job in order of time, and what was odd about its rows."""

    job_id: str
    user: str
    segments: tuple[Segment, ...]
    oddities: tuple[Oddity, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The oddities in words."""
        return tuple(oddity.what for oddity in self.oddities)


def histories(
    rows: Iterable[AccountingRow], *, now_s: float, gpus_per_node: Mapping[str, int] | None = None
) -> list[JobHistory]:
    """The history of each job in `rows`, which may come in any order, ordered by first submission.

    `now_s` ends what still runs. `gpus_per_node` (by partition) counts GPUs where Slurm does not. Rows that contradict
    each other are put right as far as the other rows allow, and named in `oddities`; nothing is fatal.
    """
    by_job: dict[tuple[str, str], list[AccountingRow]] = defaultdict(list)
    for row in rows:
        # Ids start again when a cluster's counter is reset; the user tells the two jobs apart.
        by_job[row.job_id, row.user].append(row)
    found = [settled(history(job, gpus_per_node or {}), now_s) for job in by_job.values()]
    return sorted(found, key=in_order)


def in_order(job: JobHistory) -> tuple[int, tuple[tuple[int, str], ...], str]:
    """The order of a report: by first submission, then by id."""
    return job.segments[0].submit_s, natural(job.job_id), job.user


def settled(job: JobHistory, now_s: float) -> JobHistory:
    """The history with all that goes on counted until `now_s`, or until its time limit if it must have ended there."""
    if not any(segment.open for segment in job.segments):
        return job
    oddities = list(job.oddities)
    segments = tuple(_until(segment, int(now_s), oddities) if segment.open else segment for segment in job.segments)
    return msgspec.structs.replace(job, segments=segments, oddities=tuple(oddities))


def _until(segment: Segment, now_s: int, oddities: list[Oddity]) -> Segment:
    limit_s = segment.time_limit_s
    runs = segment.start_s is not None and segment.ended_by != "SUSPENDED"
    if runs and limit_s is not None and now_s - segment.end_s > limit_s + RUNAWAY_AFTER_S:
        what = f"it is {segment.ended_by} since long after its time limit: it is counted until that"
        oddities.append(Oddity("runaway", what))
        end_s = segment.end_s + limit_s
        return msgspec.structs.replace(segment, end_s=end_s, open=False, ended_by="RUNAWAY")
    if segment.end_s > now_s + CLOCKS_DIFFER_S:
        what = f"it is {segment.ended_by} since a time that has not come yet: it counts as 0 s"
        oddities.append(Oddity("ahead of the clock", what))
    return msgspec.structs.replace(segment, end_s=max(segment.end_s, now_s))


def natural(job_id: str) -> tuple[tuple[int, str], ...]:
    """A sort key by which job 9 comes before job 10 and task 12_3 before 12_20."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", job_id))


class _Run(NamedTuple):
    """A row between its neighbours, without which it cannot be read."""

    row: AccountingRow
    before: AccountingRow | None
    after: AccountingRow | None

    @property
    def was_resized(self) -> bool:
        """Whether it goes on where another size left off."""
        return self.before is not None and self.before.state == "RESIZING"


def history(rows: Sequence[AccountingRow], gpus_per_node: Mapping[str, int]) -> JobHistory:
    """The history of one job; what goes on ends at its start, until `settled` says until when it is counted."""
    oddities: list[Oddity] = []
    ordered = _one_per_submit(rows, oddities)
    runs = [_Run(*near) for near in zip(ordered, [None, *ordered[:-1]], [*ordered[1:], None], strict=True)]
    return JobHistory(
        job_id=ordered[0].job_id,
        user=ordered[0].user,
        segments=tuple(_segment(run, gpus_per_node, oddities) for run in runs),
        oddities=tuple(oddities),
    )


def _one_per_submit(rows: Sequence[AccountingRow], oddities: list[Oddity]) -> list[AccountingRow]:
    """Rows by Submit, the key of a run. Of two readings of one row the later one knows its end."""
    if len(rows) == 1:
        return list(rows)
    best: dict[float, AccountingRow] = {}
    for row in sorted(rows, key=lambda row: (row.end_s is not None, row.end_s or 0.0, msgspec.json.encode(row))):
        if best.get(row.submit_s, row) != row:
            what = f"{_named(row)} is there twice: the reading that knows its end is counted"
            oddities.append(Oddity("row read twice", what))
        best[row.submit_s] = row
    ordered = [best[submit_s] for submit_s in sorted(best)]
    # Left for ever by Slurm 22.05 when a resized job is requeued twice; its end is not known to accounting.
    ghosts = [row for row in ordered[1:] if row.state in WAITING and row.start_s is not None]
    for row in ghosts:
        what = f"{_named(row)} is {row.state} though it has a Start: it is not counted"
        oddities.append(Oddity("row left behind", what))
    return [row for row in ordered if row not in ghosts]


def _segment(run: _Run, gpus_per_node: Mapping[str, int], oddities: list[Oddity]) -> Segment:
    row, after = run.row, run.after
    start_s, end_s = _span(run, oddities)
    restart_cost_s = 0
    if after is not None and start_s is not None and row.state in RESTARTED:
        # Slurm ends the row when the requeue is asked for and submits the next once all nodes are clean.
        restart_cost_s = int(after.submit_s) - end_s
    return Segment(
        job_id=row.job_id,
        user=row.user,
        account=row.account,
        partition=row.partition,
        name=row.name,
        submit_s=int(row.submit_s),
        start_s=start_s,
        end_s=end_s,
        open=after is None and row.end_s is None,
        nodes=row.nodes if start_s is not None else (),
        gpus=_gpus(row, gpus_per_node, oddities) if start_s is not None else 0,
        wait_since_s=_wait_since_s(run, start_s),
        ended_by=_ended_by(row, oddities),
        ended_how=_ended_how(row),
        restart_cost_s=restart_cost_s,
        time_limit_s=None if row.time_limit_s is None else int(row.time_limit_s),
    )


def _span(run: _Run, oddities: list[Oddity]) -> tuple[int | None, int]:
    """From when to when the row held its nodes: never outside of its own Submit and that of the next row."""
    row, after = run.row, run.after
    submit_s = int(row.submit_s)
    _check_span(run, oddities)
    known = (row.end_s, after.submit_s if after is not None else None)
    bounds = [int(bound_s) for bound_s in known if bound_s is not None]
    end_s = max(min(bounds, default=submit_s), submit_s)
    if row.start_s is None:
        return None, end_s
    start_s = max(int(row.start_s), submit_s)
    return (start_s, start_s) if not bounds else (min(start_s, end_s), end_s)


def _check_span(run: _Run, oddities: list[Oddity]) -> None:
    """Names what cannot be about the times of a row."""
    row, after = run.row, run.after
    if row.start_s is not None and row.start_s < row.submit_s and not run.was_resized:
        what = f"{_named(row)} started before it and follows no resize: earlier rows seem to be missing"
        oddities.append(Oddity("earlier rows missing", what))
    if row.end_s is None:
        if after is not None or row.state not in WAITING | GOING_ON:
            what = f"{_named(row)} is {row.state} and was never closed: it ends with the next row, or now"
            oddities.append(Oddity("row never closed", what))
    elif after is not None and row.end_s > after.submit_s:
        what = f"{_named(row)} overlaps the next one: it is cut where that begins"
        oddities.append(Oddity("rows overlap", what))
    elif row.start_s is not None and row.end_s < max(row.start_s, row.submit_s):
        oddities.append(Oddity("ends before it starts", f"{_named(row)} ends before it starts: it counts as 0 s"))


def _wait_since_s(run: _Run, start_s: int | None) -> int | None:
    """Since when a row waits. The first run waits since it was eligible, as Slurm counts it; a requeued one since its
    Submit, for the hold and the delay that come before it is eligible again are part of the move's price. A held job
    that was never eligible does not wait for nodes."""
    row = run.row
    since_s: float | None = row.submit_s
    if run.before is None and (row.eligible_s is not None or start_s is None):
        since_s = row.eligible_s
    return None if since_s is None else int(since_s)


def _gpus(row: AccountingRow, gpus_per_node: Mapping[str, int], oddities: list[Oddity]) -> int:
    """GPUs held: as accounted, unless the TRES of the row are those of another size; else by site and partition."""
    nnodes = len(row.nodes)
    if nnodes == 0:  # "None assigned": never had nodes, or gave them to the job that it merged into
        return 0
    if row.gpus is None:
        return nnodes * gpus_per_node.get(row.partition, 0)
    if row.tres_nodes in (None, 0, nnodes):
        return row.gpus
    what = (
        f"{_named(row)} held {nnodes} nodes while its AllocTRES tells of {row.tres_nodes}: "
        "GPUs are counted by the nodes"
    )
    oddities.append(Oddity("TRES of another size", what))
    return round(row.gpus * nnodes / row.tres_nodes)


def _ended_by(row: AccountingRow, oddities: list[Oddity]) -> str:
    if row.state == "RESIZING":
        return "RESIZED" if row.nodes else "MERGED"
    if row.state not in KNOWN:
        oddities.append(Oddity("unknown state", f"{_named(row)} has the state {row.state!r}, unknown to us"))
    return row.state


def _named(row: AccountingRow) -> str:
    return f"the row of Submit {datetime.fromtimestamp(row.submit_s).isoformat(timespec='seconds')}"


def _ended_how(row: AccountingRow) -> str:
    """What a state alone does not say. `0:9` is death by signal 9, whatever the state claims."""
    if row.cancelled_by is not None:
        return f"by {row.cancelled_by}"
    if row.signal:
        return f"signal {row.signal}"
    return f"exit {row.exit_status}" if row.exit_status else ""
