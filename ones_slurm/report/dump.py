"""What somebody saved of `sacct -D -P` on any cluster, any release, any columns in any order."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.slurm.accounting import read_row
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.jobids import read_job_id
from ones_slurm.slurm.times import date_s

NEEDED = ("JobID", "State", "Submit", "Start", "End", "NodeList")
USED = (*NEEDED, "JobIDRaw", "User", "Account", "Partition", "JobName", "Eligible", "NNodes", "NCPUS", "AllocTRES")
_ALSO_USED = ("ExitCode", "Timelimit", "Comment", "SubmitLine")
# Users' own text, in which the separator may stand.
_FREE_TEXT = ("JobName", "Comment", "SubmitLine", "WorkDir", "AdminComment", "SystemComment", "Extra", "Reason")


class Dump(msgspec.Struct, frozen=True):
    """The rows of jobs (steps are left out), and how many lines could not be read."""

    rows: tuple[AccountingRow, ...]
    unreadable: int = 0

    @property
    def last_s(self) -> float:
        """The latest moment that any row knows of: until then, at least, its running jobs ran."""
        times = (time_s for row in self.rows for time_s in (row.submit_s, row.start_s, row.end_s))
        return max((time_s for time_s in times if time_s is not None), default=0.0)


def read_dump(path: Path) -> Dump:
    """Reads such a file. Raises `NotFound` or `UsageError` that says how to make one."""
    how = f"make one with `sacct -D -P -X -a -S <when> -o {','.join((*USED, *_ALSO_USED))}`"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}", hint=how) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=how) from error
    header, *lines = text.replace("\r\n", "\n").split("\n")
    names = header.split("|")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise UsageError(f"the first line of {path} names no column {', '.join(missing)}", hint=how)
    rows, unreadable = [], 0
    for line in lines:
        if not line.strip() or line == header:  # two dumps, one behind the other
            continue
        fields = next((found for found in _ways_to_split(line, names) if _is_row(found)), None)
        if fields is None:
            unreadable += 1
        elif "." not in fields["JobID"]:
            rows.append(read_row(dict.fromkeys((*USED, *_ALSO_USED), "") | {"JobIDRaw": fields["JobID"]} | fields))
    return Dump(tuple(rows), unreadable)


def _ways_to_split(line: str, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """The fields by column; where there are too many, each free text in turn is taken to hold the separator."""
    parts = line.split("|")
    extra = len(parts) - len(names)
    if extra == 0:
        yield dict(zip(names, parts, strict=True))
    elif extra > 0:
        for at in (number for number, name in enumerate(names) if name in _FREE_TEXT):
            whole = "|".join(parts[at : at + extra + 1])
            yield dict(zip(names, [*parts[:at], whole, *parts[at + extra + 1 :]], strict=True))


def _is_row(fields: dict[str, str]) -> bool:
    """Whether the columns stand where they belong."""
    return (
        read_job_id(fields["JobID"]) is not None
        and date_s(fields["Submit"]) is not None
        and all(
            date_s(fields[name]) is not None or fields[name] in {"Unknown", "None", ""} for name in ("Start", "End")
        )
        and fields["State"].partition(" ")[0].isupper()
    )
