"""`ones report`: what happened to jobs, one line for each size they had."""

from __future__ import annotations

import os
import pwd
import sys
import time
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ones_slurm.report.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ones_slurm.daemon.answers import Why
    from ones_slurm.engine.records import Holding, MoveRow
    from ones_slurm.model.settings import Daemon, Site
    from ones_slurm.report.join import Known
    from ones_slurm.report.segments import JobHistory
    from ones_slurm.report.selection import Selection
    from ones_slurm.report.table import Chosen
    from ones_slurm.slurm.client import AccountingRow

_EPILOG = "\b\nColumns:\n" + "\n".join(f"  {column.key:<10} {column.what}" for column in COLUMNS)


@click.command(epilog=_EPILOG)
@click.option(
    "-S", "--starttime", help="jobs that were there then or later  [default: midnight; ever, with -j or --from]"
)
@click.option("-E", "--endtime", help="jobs that were there then or earlier  [default: now]")
@click.option("-u", "--user", help="jobs of these users, as a,b  [default: yours; all, with -j or --from or as root]")
@click.option("-a", "--allusers", is_flag=True, help="jobs of all users")
@click.option("-A", "--account", help="jobs of these accounts, as a,b")
@click.option("-p", "--partition", help="jobs in these partitions, as a,b")
@click.option("-j", "--jobs", help="these jobs, as 12,12_3; 12 stands for all of its tasks and components")
@click.option("-o", "--format", help="columns as name,name%width (listed below)")
@click.option("-P", "--parsable", is_flag=True, help="one line a segment, fields separated by |")
@click.option("--json", "as_json", is_flag=True, help="everything there is, as JSON with a version")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="write one page with pictures to this file"
)
@click.option("--from", "dump", type=click.Path(path_type=Path), help="read this output of `sacct -D -P`, not Slurm")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    help="onesd's journal  [default: in state_dir, or onesd is asked]",
)
@click.pass_obj
def command(
    site: str | None,
    *,
    starttime: str | None,
    endtime: str | None,
    user: str | None,
    allusers: bool,
    account: str | None,
    partition: str | None,
    jobs: str | None,
    format: str | None,
    parsable: bool,
    as_json: bool,
    html: Path | None,
    dump: Path | None,
    journal: Path | None,
) -> None:
    """Show what happened: the sizes, waits, GPU-hours and moves of jobs.

    A time is as Slurm takes it: now-7days, today, 14:30, 2026-11-30, 2026-11-30T14:30, 11/30. A job is shown with its
    whole history, also with what lies before -S.
    """
    from ones_slurm.cli.report_page import write_page
    from ones_slurm.engine.journal import Journal
    from ones_slurm.model.errors import NotFound
    from ones_slurm.model.settings import load_site
    from ones_slurm.report.columns import chosen

    columns = chosen(format) if format else ()
    settings = load_site(site)
    selection = _selection(
        any_time=bool(jobs or dump),
        start=starttime,
        end=endtime,
        users=_words(user),
        everybody=allusers,
        accounts=_words(account),
        partitions=_words(partition),
        job_ids=_words(jobs),
    )
    rows, now_s = _from_dump(dump, selection) if dump else _from_slurm(selection)
    if not rows:
        raise NotFound("no job is found that fits", hint="widen it: -S now-7days for the last week, -a for all users")
    if journal is None and not dump and os.access(settings.daemon.journal, os.R_OK):
        journal = settings.daemon.journal
    with Journal.read(journal) if journal is not None else nullcontext() as opened:
        found = _histories(rows, now_s, settings, opened or (None if dump else _Asked(settings.daemon, rows)))
        if html is not None:
            everybody = not (selection.users or selection.accounts or selection.partitions or selection.job_ids)
            write_page(html, found, rows, settings, now_s=now_s, everybody=everybody, journal=opened)
    if html is None:
        _print(found, columns, parsable=parsable, as_json=as_json)
    for history in found:
        for warning in history.warnings:
            _warn(f"job {history.job_id}: {warning}")


def _selection(
    *, any_time: bool, start: str | None, end: str | None, users: tuple[str, ...], everybody: bool, **more: Any
) -> Selection:
    from ones_slurm.model.errors import UsageError
    from ones_slurm.report.selection import Selection
    from ones_slurm.report.when import parse_when

    now = datetime.now()
    since_s = 0.0 if any_time and start is None else parse_when(start or "midnight", now)
    until_s = None if end is None else parse_when(end, now)
    if until_s is not None and until_s < since_s:
        raise UsageError(f"-E {end} lies before -S {start or 'midnight'}", hint="give an earlier -S")
    if not (users or everybody or any_time or os.getuid() == 0):
        users = (pwd.getpwuid(os.getuid()).pw_name,)
    return Selection(since_s=since_s, until_s=until_s, users=users, **more)


def _from_slurm(selection: Selection) -> tuple[list[AccountingRow], float]:
    from ones_slurm.report.selection import read_rows
    from ones_slurm.slurm.cli_client import CommandClient

    return read_rows(CommandClient(), selection), time.time()


def _from_dump(path: Path, selection: Selection) -> tuple[list[AccountingRow], float]:
    """The rows, and until when running jobs are counted: a dump knows nothing of what came after it."""
    from ones_slurm.report.dump import read_dump

    dump = read_dump(path)
    if dump.unreadable:
        _warn(f"{path}: {dump.unreadable} lines are no rows of sacct and are not counted")
    return selection.of(dump.rows), dump.last_s if selection.until_s is None else selection.until_s


def _histories(rows: Sequence[AccountingRow], now_s: float, site: Site, known: Known | None) -> list[JobHistory]:
    from ones_slurm.report.join import joined
    from ones_slurm.report.segments import histories

    per_node = {name: partition.gpus_per_node for name, partition in site.partitions.items()}
    if known is None:
        return histories(rows, now_s=now_s, gpus_per_node=per_node)
    return joined(rows, known, now_s=now_s, gpus_per_node=per_node)


class _Asked:
    """What `onesd` answers of jobs that have a wish. The first question that it does not answer is the last one."""

    def __init__(self, daemon: Daemon, rows: Iterable[AccountingRow]) -> None:
        self._daemon = daemon
        self._left = {row.job_id for row in rows if "ones:" in row.comment}
        self._answers: dict[str, Why] = {}

    def moves(self, job_id: str) -> Sequence[MoveRow]:
        answer = self._ask(job_id)
        return answer.moves if answer is not None else ()

    def holdings(self, job_id: str) -> Sequence[Holding]:
        answer = self._ask(job_id)
        return answer.holdings if answer is not None else ()

    def _ask(self, job_id: str) -> Why | None:
        from urllib.parse import quote

        from ones_slurm.daemon.answers import Why
        from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable
        from ones_slurm.peer.client import Client

        if job_id in self._left:
            self._left.discard(job_id)
            try:
                self._answers[job_id] = Client(self._daemon).get(f"/v1/jobs/{quote(job_id, safe='')}/why", Why)
            except Unreachable as error:
                self._left.clear()
                _warn(f"no batches and moves, for {error.message}")
            except (NotAllowed, NotFound):
                pass  # a job of somebody else, or of a time before this onesd
        return self._answers.get(job_id)


def _print(jobs: Sequence[JobHistory], columns: Chosen, *, parsable: bool, as_json: bool) -> None:
    import msgspec
    from rich.console import Console

    from ones_slurm.report import table
    from ones_slurm.report.columns import report_values

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report_values(jobs)), indent=1))
    elif parsable:
        _lines(table.parsable(jobs, columns or table.EVERYTHING))
    elif sys.stdout.isatty():
        table.on_terminal(Console(), jobs, columns or table.DEFAULT)
    else:
        _lines(table.plain(jobs, columns or table.DEFAULT))


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _words(given: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in given.split(",") if word.strip()) if given else ()


def _warn(text: str) -> None:
    click.echo(f"ones: {text}", err=True)
