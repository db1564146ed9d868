"""Which jobs a report is about, and how their rows are had: whole histories, though only a part lies in the window."""

from collections.abc import Iterable

import msgspec

from ones_slurm.slurm.client import AccountingRow, SlurmClient

# Ours: some thousand ids fit any command line and keep a query of slurmdbd short.
_IDS_PER_QUERY = 1000


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were queued or running between `since_s` and `until_s`; an empty tuple does not restrict.

    A job id stands for all of its array tasks and components: `12` for `12_3`, `12_[4-9]` and `12+1`.
    """

    since_s: float = 0.0
    until_s: float | None = None
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()

    def takes(self, row: AccountingRow) -> bool:
        """Whether this row puts its job into the report."""
        begins_in_time = self.until_s is None or row.submit_s <= self.until_s
        ends_in_time = row.end_s is None or row.end_s >= self.since_s
        return (
            begins_in_time
            and ends_in_time
            and (not self.users or row.user in self.users)
            and (not self.accounts or row.account in self.accounts)
            and (not self.partitions or not set(row.partition.split(",")).isdisjoint(self.partitions))
            and (not self.job_ids or any(_stands_for(wanted, row) for wanted in self.job_ids))
        )

    def of(self, rows: Iterable[AccountingRow]) -> list[AccountingRow]:
        """All rows of the jobs of which at least one row is taken."""
        all_rows = list(rows)
        taken = {(row.job_id, row.user) for row in all_rows if self.takes(row)}
        return [row for row in all_rows if (row.job_id, row.user) in taken]


def read_rows(client: SlurmClient, selection: Selection) -> list[AccountingRow]:
    """The whole history of each selected job, from a live Slurm.

    Accounting asked for a window leaves out what was closed before it, and a resized job is misread without its
    earlier rows: so the window finds the jobs, and a second query has their rows from the beginning.
    """
    user = selection.users[0] if len(selection.users) == 1 else None
    in_window = client.accounting(
        since_s=selection.since_s, until_s=selection.until_s, job_ids=selection.job_ids, user=user
    )
    ids = sorted({row.job_id.partition("_")[0].partition("+")[0] for row in in_window if selection.takes(row)})
    rows: list[AccountingRow] = []
    for first in range(0, len(ids), _IDS_PER_QUERY):
        rows += client.accounting(since_s=0, job_ids=ids[first : first + _IDS_PER_QUERY], user=user)
    return selection.of(rows)


def _stands_for(wanted: str, row: AccountingRow) -> bool:
    return wanted in {row.job_id, row.raw_id} or row.job_id.startswith((f"{wanted}_", f"{wanted}+"))
