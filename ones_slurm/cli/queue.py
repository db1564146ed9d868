"""`ones queue`: what squeue shows, and beside it batch, progress and moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import Column, choose, explained, show
from ones_slurm.report.shown import show_duration, show_time, show_types

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


def _time(row: JobRow) -> str:
    """How long it has run, as squeue counts."""
    return show_duration(max(time.time() - row.start_s, 0)) if row.start_s is not None else "0:00"


def _eta(row: JobRow) -> str:
    return show_time(round(row.eta_s)) if row.eta_s is not None else "-"


def _next(row: JobRow) -> str:
    """Nodes and batch that it is to have, as nodes:batch; a question mark where that is advice."""
    advice = "?" if row.rung == "advise" else ""
    return "-" if row.next_nodes is None else f"{row.next_nodes}:{row.next_batch or '-'}{advice}"


def _where(row: JobRow) -> str:
    from ones_slurm.slurm.hostlists import fold

    return fold(row.node_list) if row.node_list else f"({row.reason or 'None'})"


COLUMNS: tuple[Column[JobRow], ...] = (
    Column("jobid", lambda row: row.job_id, right=True, what="job or array task"),
    Column("partition", lambda row: row.partition, what="partition"),
    Column("name", lambda row: row.name, what="name of the job"),
    Column("user", lambda row: row.user, what="who submitted it"),
    Column("st", lambda row: SHORT_STATES.get(row.state, row.state), what="state, in squeue's letters"),
    Column("time", _time, right=True, what="how long it has run since it last started"),
    Column("nodes", lambda row: str(row.nodes), right=True, what="nodes held, or asked for while it waits"),
    Column("gpus", lambda row: _count(row.gpus), right=True, what="GPUs held, or asked for while it waits"),
    Column(
        "gputype",
        lambda row: show_types(row.gpu_types),
        what="type of these GPUs, with their number where there are several; shown unasked if the cluster has several",
        default=False,
    ),
    Column("batch", lambda row: _count(row.batch), right=True, what="global batch in samples a step"),
    Column("prog", _done, right=True, what="share of its samples trained, by its own account"),
    Column("eta", _eta, what="when it is done at its present speed, by its own account"),
    Column(
        "next", _next, what="nodes:batch that the policy wants it to have instead, with a ? where that is only advice"
    ),
    Column("nodelist", _where, what="its nodes, or in brackets why it waits"),
    Column("rung", lambda row: str(row.rung), what="how far onesd goes: off, observe, advise, act", default=False),
    Column(
        "gen", lambda row: _count(row.generation), right=True, what="generation: how often it began anew", default=False
    ),
    Column("move", lambda row: row.move or "-", what="change under way, and how far it has come", default=False),
    Column("reason", lambda row: row.reason, what="why it has this size, or is not touched", default=False),
    Column("wish", lambda row: row.wish or "-", what="between which sizes it may be moved", default=False),
)


@click.command(epilog=explained(COLUMNS))
@click.option("-u", "--user", help="only jobs of these users, as a,b")
@click.option("-p", "--partition", help="only jobs in these partitions, as a,b")
@click.option("-j", "--jobs", help="only these jobs, as 12,12_3")
@click.option("-o", "--format", help="columns as name,name%width (listed below)")
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
    """List your unfinished jobs: what squeue shows, and size, batch, progress, predicted end and next size."""
    import msgspec

    from ones_slurm.daemon.answers import Queue
    from ones_slurm.model.errors import NotFound
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    columns = choose(COLUMNS, format)
    queue = Client(load_site(site).daemon).get("/v1/queue", Queue)
    if format is None and len(queue.gpu_types) > 1:
        columns = [column for column in COLUMNS if column.default or column.name == "gputype"]
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
