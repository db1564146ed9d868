"""Keeps a ledger up to date with a live Slurm, and asks slurmdbd for no more than it has to.

The ledger remembers for which time it has all jobs of a user (or of all users), so that the next report asks only for
what is new. Accounting asked for a window leaves out rows that were closed before it, without which a resized job
cannot be understood: such jobs are asked for again, from their beginning. So are jobs that the ledger believes to go
on and that the window does not show: their end was told late.
"""

from collections.abc import Iterable, Iterator

from ones_slurm.report.ledger import Ledger
from ones_slurm.report.selection import Selection
from ones_slurm.slurm.client import AccountingRow, SlurmClient

# Ours: slurmctld keeps for a while what slurmdbd does not take, so the last hour is always asked for again.
OVERLAP_S = 3600.0
# Ours: between a requeued run and the next lies the time in which nodes are completing, and that is never a day.
_GAP_S = 86400.0
# Ours: a month of a large site is some 100,000 rows, which one query still answers.
_WINDOW_S = 31 * 86400.0
_MOST_WINDOWS = 60
# Ours: some thousand ids fit any command line and keep a query of slurmdbd short.
_IDS_PER_QUERY = 1000


def refresh(ledger: Ledger, client: SlurmClient, selection: Selection, *, now_s: float) -> None:
    """Has all that a report on this selection needs in the ledger."""
    user = selection.users[0] if len(selection.users) == 1 else None
    if selection.job_ids:
        asked = client.accounting(since_s=0, job_ids=_numbers(selection.job_ids), user=user)
        ledger.take([*asked, *_companions(client, asked)], read_s=now_s)
        return
    whose = user or ""
    covered = ledger.covered(whose)
    long_ago = selection.until_s is not None and covered is not None and selection.until_s < covered[1] - OVERLAP_S
    if long_ago and covered is not None and covered[0] <= selection.since_s:
        return
    rows: list[AccountingRow] = []
    begun_before: set[str] = set()
    for from_s, to_s in _missing(covered, selection.since_s, now_s):
        window = client.accounting(since_s=from_s, until_s=to_s, user=user)
        rows += window
        # Behind a time that is known the earlier rows are in the ledger already.
        is_known = covered is not None and covered[0] + _GAP_S <= from_s <= covered[1]
        if not is_known:
            begun_before |= {_number(row.job_id) for row in window if row.submit_s < from_s + _GAP_S}
    seen = {_number(row.job_id) for row in rows}
    begun_before = {number for number in begun_before if not ledger.knows(int(number))}
    ended_late = {str(number) for number in ledger.going_on(user)} - seen
    for ids in _in_pieces(sorted(begun_before | ended_late, key=int)):
        rows += client.accounting(since_s=0, job_ids=ids, user=user)
    begin_s = selection.since_s if covered is None else min(covered[0], selection.since_s)
    ledger.take(rows, read_s=now_s, covers=(whose, begin_s, now_s))


def _missing(covered: tuple[float, float] | None, since_s: float, now_s: float) -> Iterator[tuple[float, float | None]]:
    """The windows of which the ledger does not have everything yet; the last one has no end, for it is now."""
    if covered is None:
        yield from _in_windows(since_s, None, now_s)
        return
    if since_s < covered[0]:
        yield from _in_windows(since_s, covered[0], now_s)
    yield from _in_windows(max(covered[1] - OVERLAP_S, covered[0]), None, now_s)


def _in_windows(from_s: float, to_s: float | None, now_s: float) -> Iterator[tuple[float, float | None]]:
    end_s = now_s if to_s is None else to_s
    if end_s - from_s < _MOST_WINDOWS * _WINDOW_S:
        while end_s - from_s > _WINDOW_S:
            yield from_s, from_s + _WINDOW_S
            from_s += _WINDOW_S
    yield from_s, to_s


def _companions(client: SlurmClient, rows: Iterable[AccountingRow]) -> list[AccountingRow]:
    """What was accounted for the same users while elastic jobs lasted, their companions among it."""
    spans: dict[str, list[float | None]] = {}
    for row in rows:
        if "ones:" in row.comment:
            spans.setdefault(row.user, []).extend((row.submit_s, row.end_s))
    found = []
    for user, times in spans.items():
        known = [at_s for at_s in times if at_s is not None]
        until_s = max(known) if len(known) == len(times) else None
        found += client.accounting(since_s=min(known), until_s=until_s, user=user)
    return [row for row in found if "ones:companion-of=" in row.comment]


def _numbers(job_ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(_number(job_id) for job_id in job_ids))


def _number(job_id: str) -> str:
    return job_id.partition("_")[0].partition("+")[0]


def _in_pieces(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), _IDS_PER_QUERY):
        yield ids[first : first + _IDS_PER_QUERY]
