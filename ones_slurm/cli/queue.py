"""`ones queue`: what squeue shows, and beside it batch, progress and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import Column, choose, show

if TYPE_CHECKING:
    from ones_slurm.daemon.answers import JobRow

# squeue's own letters where it has them.
SHORT_STATES = {
    "pending": "PD",
    "running": "R",
    "suspended": "S",
    "ending": "CG",
    "done": "CD",
    "failed": "F",
    "unknown": "?",
}


def _count(number: int) -> str:
    return str(number) if number else "-"


def _done(row: JobRow) -> str:
    return "-" if row.done is None else f"{100 * row.done:.0f}%"


COLUMNS: tuple[Column[JobRow], ...] = (
    Column("jobid", lambda row: row.job_id, right=True),
    Column("partition", lambda row: row.partition),
    Column("name", lambda row: row.name),
    Column("user", lambda row: row.user),
    Column("st", lambda row: SHORT_STATES.get(row.state, row.state)),
    Column("nodes", lambda row: str(row.nodes), right=True),
    Column("gpus", lambda row: _count(row.gpus), right=True),
    Column("batch", lambda row: _count(row.batch), right=True),
    Column("prog", _done, right=True),
    Column("gen", lambda row: _count(row.generation), right=True),
    Column("move", lambda row: row.move or "-"),
    Column("reason", lambda row: row.reason),
)


@click.command()
@click.option("-u", "--user", help="only jobs of these users, as a,b")
@click.option("-p", "--partition", help="only jobs in these partitions, as a,b")
@click.option("-j", "--jobs", help="only these jobs, as 12,12_3")
@click.option("-o", "--format", help=f"columns as name,name%width: {', '.join(c.name for c in COLUMNS)}")
@click.option("--noheader", is_flag=True, help="no heading")
@click.option("--json", "as_json", is_flag=True, help="everything there is, as JSON with a version")
@click.pass_obj
def command(
    site: str | None,
    *,
    user: str | None,
    partition: str | None,
    jobs: str | None,
    format: str | None,
    noheader: bool,
    as_json: bool,
) -> None:
    """List your unfinished jobs with size, batch, progress and moves."""
    import msgspec

    from ones_slurm.daemon.answers import Queue
    from ones_slurm.model.errors import NotFound
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    columns = choose(COLUMNS, format)
    queue = Client(load_site(site).daemon).get("/v1/queue", Queue)
    wanted = {"user": _words(user), "partition": _words(partition), "job_id": _words(jobs)}
    rows = [
        row for row in queue.jobs if all(not words or getattr(row, field) in words for field, words in wanted.items())
    ]
    if jobs and not rows:
        raise NotFound(f"no such job among yours: {jobs}", hint="`ones queue` lists them; finished ones: `ones report`")
    if as_json:
        chosen = msgspec.structs.replace(queue, jobs=tuple(rows))
        click.echo(msgspec.json.format(msgspec.json.encode(chosen), indent=1))
    else:
        show(columns, rows, header=not noheader)


def _words(given: str | None) -> set[str]:
    return {word.strip() for word in given.split(",")} if given else set()
