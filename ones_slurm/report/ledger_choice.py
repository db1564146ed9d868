"""Which jobs of a ledger a selection means."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from ones_slurm.report.selection import Selection

# A number stands for all tasks and components, for the one that has it as its own id, and for a companion's base.
_NUMBERED = (
    "(job = ? or (job, job_id) in (select job, job_id from rows where raw_id = ? and raw_id <> job_id) "
    "or job in (select owner from jobs where base <> '' and job = ?))"
)


def choose(db: sqlite3.Connection, selection: Selection) -> None:
    """Leaves the keys of the selected jobs (`own`) and of their companions in `temp.chosen`."""
    where, values = condition(selection)
    db.execute("drop table if exists temp.chosen")
    db.execute("create temp table chosen(job, job_id, user, own, primary key (job, job_id, user)) without rowid")
    db.execute(f"insert into chosen select job, job_id, user, 1 from jobs where {where}", values)
    db.execute(
        "insert or ignore into chosen select c.job, c.job_id, c.user, 0 "
        "from jobs c join chosen on c.owner = chosen.job where c.base <> ''"
    )


def condition(selection: Selection) -> tuple[str, list[Any]]:
    """The condition on `jobs` for a selection, and its values."""
    parts = ["base = ''", "(end_s is null or end_s >= ?)"]
    values: list[Any] = [selection.since_s]
    if selection.until_s is not None:
        parts.append("submit_s <= ?")
        values.append(selection.until_s)
    for column, names in (("user", selection.users), ("account", selection.accounts)):
        if names:
            parts.append(f"{column} in ({', '.join('?' * len(names))})")
            values += names
    if selection.partitions:
        parts.append(_either(["instr(',' || partitions || ',', ?)"] * len(selection.partitions)))
        values += [f",{name}," for name in selection.partitions]
    if selection.job_ids:
        parts.append(_either([_NUMBERED if wanted.isdecimal() else "job_id = ?" for wanted in selection.job_ids]))
        for wanted in selection.job_ids:
            values += [int(wanted), wanted, int(wanted)] if wanted.isdecimal() else [wanted]
    return " and ".join(parts), values


def _either(conditions: Sequence[str]) -> str:
    return f"({' or '.join(conditions)})"
