"""`ones report`: what happened to jobs, one line for each size they had, or sums of them."""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ones_slurm.cli.books import books, journal_path, learn, warn
from ones_slurm.report.column import Column
from ones_slurm.report.columns import GROUP_COLUMNS, JOB_COLUMNS
from ones_slurm.report.segment_columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ones_slurm.report.ledger import Ledger
    from ones_slurm.report.segments import JobHistory
    from ones_slurm.report.selection import Selection
    from ones_slurm.report.table import Chosen

BY = ("segment", "job", "user", "account", "partition", "day")
# Ours: nobody reads a tale of more jobs than that; `--by segment` tells it all the same.
MOST_TOLD = 1000
_SHOWN = 10


def _explained(columns: Sequence[Column]) -> str:
    return "\n".join(f"  {column.key:<13} {column.what}" for column in columns)


_FORMATS = (
    f"\b\nColumns by segment:\n{_explained(COLUMNS)}\n\n\b\nColumns by job:\n{_explained(JOB_COLUMNS)}"
    f"\n\n\b\nColumns by user, account, partition and day:\n{_explained(GROUP_COLUMNS)}"
)


def _help_format(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(_FORMATS.replace("\b\n", ""))
        ctx.exit()


@click.command(epilog=_FORMATS)
@click.option(
    "-S", "--starttime", help="jobs that were there then or later  [default: midnight; ever, with -j or --from]"
)
@click.option("-E", "--endtime", help="jobs that were there then or earlier  [default: now]")
@click.option("-u", "--user", help="jobs of these users, as a,b  [default: yours; all, with -j or --from or as root]")
@click.option("-a", "--allusers", is_flag=True, help="jobs of all users")
@click.option("-A", "--account", help="jobs of these accounts, as a,b")
@click.option("-p", "--partition", help="jobs in these partitions, as a,b")
@click.option("-j", "--jobs", help="these jobs, as 12,12_3; 12 stands for all of its tasks and components")
@click.option(
    "--by",
    type=click.Choice(BY),
    help=f"a line for each of these  [default: segment; user, if there are more than {MOST_TOLD} jobs]",
)
@click.option("-o", "--format", help="columns as name,name%width (listed below)")
@click.option(
    "-e",
    "--helpformat",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_help_format,
    help="explain every column, and leave",
)
@click.option("-P", "--parsable", is_flag=True, help="all columns, separated by |")
@click.option("--json", "as_json", is_flag=True, help="everything there is, as JSON with a version")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="write one page with pictures to this file"
)
@click.option("--from", "dump", type=click.Path(path_type=Path), help="read this output of `sacct -D`, not Slurm")
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="where --from is kept; without that, the ledger to ask instead of Slurm",
)
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
    by: str | None,
    format: str | None,
    parsable: bool,
    as_json: bool,
    html: Path | None,
    dump: Path | None,
    ledger: Path | None,
    journal: Path | None,
) -> None:
    """Show what happened: the sizes, waits, GPU-hours and moves of jobs, or their sums.

    A time is as Slurm takes it: now-7days, today, 14:30, 2026-11-30, 2026-11-30T14:30, 11/30. By segment and by job a
    job is shown with its whole history, also with what lies before -S; sums count what lies between -S and -E.
    """
    from ones_slurm.engine.journal import Journal
    from ones_slurm.model.errors import NotFound
    from ones_slurm.model.settings import load_site
    from ones_slurm.report.columns import chosen, columns_of

    columns = chosen(format, columns_of(by or "segment")) if format else ()
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
    live = dump is None and ledger is None
    path = journal_path(settings.daemon, journal, live=live)
    with (
        Journal.read(path) if path is not None else nullcontext() as opened,
        books(settings, selection, dump=dump, ledger=ledger) as book,
    ):
        count = book.count(selection)
        if not count:
            _tell_lost(book)
            raise NotFound(
                "no job is found that fits", hint="widen it: -S now-7days for the last week, -a for all users"
            )
        if by is None:
            told = html is not None or parsable or as_json or bool(format)
            by = "segment" if told or count <= MOST_TOLD else "user"
        now_s = None if live or selection.until_s is None else selection.until_s
        if by not in ("segment", "job"):
            from ones_slurm.report.lines import group_lines

            _print_rows(by, group_lines(by, book.groups(selection, by)), columns, parsable=parsable, as_json=as_json)
            _tell_kinds(book.odd(selection))
            _tell_lost(book)
            return
        learn(book, selection, settings.daemon, opened, may_ask=live)
        found = book.histories(selection, now_s=now_s)
        if html is not None:
            from ones_slurm.cli.report_page import write_page

            until_s = book.until_s if now_s is None else now_s
            write_page(html, found, book, selection, settings, now_s=until_s, journal=opened)
        elif by == "job":
            from ones_slurm.report.lines import job_lines

            lines = job_lines(found, _rho(book, found) if as_json or parsable or "rho" in (format or "") else None)
            _print_rows(by, lines, columns, parsable=parsable, as_json=as_json)
        else:
            _print(found, columns, parsable=parsable, as_json=as_json)
        _tell_odd(found)
        _tell_lost(book)


def _rho(book: Ledger, found: Sequence[JobHistory]) -> dict[tuple[str, str], float]:
    from ones_slurm.report.fairness import fairness

    begin_s = min(job.segments[0].submit_s for job in found)
    end_s = max(job.segments[-1].end_s for job in found)
    return fairness(found, book.spans(begin_s, end_s), book.gpus(begin_s, end_s))


def _tell_odd(found: Sequence[JobHistory]) -> None:
    """What was odd, job by job; of many the first, and how many there are of each kind."""
    from collections import Counter

    odd = [(job.job_id, oddity) for job in found for oddity in job.oddities]
    for job_id, oddity in odd[:_SHOWN]:
        warn(f"job {job_id}: {oddity.what}")
    if len(odd) > _SHOWN:
        _tell_kinds(dict(Counter(oddity.kind for _, oddity in odd).most_common()))


def _tell_kinds(kinds: dict[str, int]) -> None:
    if kinds:
        counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
        warn(f"some rows are odd ({counts}): -j JOBID tells it job by job, --by segment --json all of it")


def _tell_lost(book: Ledger) -> None:
    for lost in book.lost:
        warn(lost)


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


def _print(jobs: Sequence[JobHistory], columns: Chosen, *, parsable: bool, as_json: bool) -> None:
    from ones_slurm.report import table

    if as_json:
        import msgspec

        from ones_slurm.report.as_json import report_values

        click.echo(msgspec.json.format(msgspec.json.encode(report_values(jobs)), indent=1))
    elif parsable:
        _lines(table.parsable(jobs, columns or table.EVERYTHING))
    elif sys.stdout.isatty():
        from rich.console import Console

        table.on_terminal(Console(), table.plain(jobs, columns or table.DEFAULT))
    else:
        _lines(table.plain(jobs, columns or table.DEFAULT))


def _print_rows(by: str, lines: Any, columns: Chosen, *, parsable: bool, as_json: bool) -> None:
    from ones_slurm.report import table

    if as_json:
        import msgspec

        from ones_slurm.report.as_json import values_of

        click.echo(msgspec.json.format(msgspec.json.encode(values_of(by, lines)), indent=1))
    elif parsable:
        _lines(table.parsable_rows(lines, columns or table.everything_of(by)))
    elif sys.stdout.isatty():
        from rich.console import Console

        table.on_terminal(Console(), table.plain_rows(lines, columns or table.default_of(by)))
    else:
        _lines(table.plain_rows(lines, columns or table.default_of(by)))


def _lines(lines: Iterable[str]) -> None:
    click.echo("\n".join(lines))  # at once: of a week there are tens of thousands


def _words(given: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in given.split(",") if word.strip()) if given else ()
