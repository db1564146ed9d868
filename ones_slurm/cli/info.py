"""`ones info`: what sinfo shows of partitions, with GPUs and jobs beside it, and what onesd is doing."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ones_slurm.cli.table import Column, choose, explained, show
from ones_slurm.report.shown import show_types

if TYPE_CHECKING:
    from ones_slurm.daemon.answers import State
    from ones_slurm.model.settings import Site
    from ones_slurm.slurm.client import Snapshot


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: nodes and GPUs that are allocated, idle, or neither (down, drained), and its unfinished jobs.

    `gpu_types` are all its GPUs by their type, where Slurm names one.
    """

    partition: str
    elastic: bool
    nodes_allocated: int
    nodes_idle: int
    nodes_other: int
    gpus_allocated: int
    gpus_idle: int
    gpus_other: int
    running: int
    pending: int
    wishing: int
    gpu_types: dict[str, int]


def _aiot(allocated: int, idle: int, other: int) -> str:
    return f"{allocated}/{idle}/{other}/{allocated + idle + other}"


COLUMNS: tuple[Column[PartitionRow], ...] = (
    Column("partition", lambda row: row.partition, what="partition"),
    Column(
        "elastic", lambda row: "yes" if row.elastic else "no", what="whether the site file lets jobs be moved in it"
    ),
    Column(
        "nodes",
        lambda row: _aiot(row.nodes_allocated, row.nodes_idle, row.nodes_other),
        right=True,
        what="nodes allocated/idle/other/total, as in sinfo",
    ),
    Column(
        "gpus",
        lambda row: _aiot(row.gpus_allocated, row.gpus_idle, row.gpus_other),
        right=True,
        what="GPUs allocated/idle/other/total; other are those of nodes that are down or drained",
    ),
    Column(
        "gputype",
        lambda row: show_types(row.gpu_types),
        what="type of its GPUs, with their number where there are several; shown unasked if the cluster has several",
        default=False,
    ),
    Column("running", lambda row: str(row.running), right=True, what="jobs that hold nodes"),
    Column("pending", lambda row: str(row.pending), right=True, what="jobs that wait"),
    Column("wishing", lambda row: str(row.wishing), right=True, what="of all these, jobs with a wish for other sizes"),
)


@click.command(epilog=explained(COLUMNS))
@click.option("-p", "--partition", help="only these partitions, as a,b")
@click.option("-o", "--format", help="columns as name,name%width (listed below)")
@click.option("--noheader", is_flag=True, help="no heading")
@click.option("--json", "as_json", is_flag=True, help="everything there is, as JSON with a version")
@click.pass_obj
def command(site: str | None, *, partition: str | None, format: str | None, noheader: bool, as_json: bool) -> None:
    """Show partitions with their nodes, GPUs and jobs, and what onesd is doing.

    Asks Slurm; onesd need not run.
    """
    from ones_slurm.model.errors import NotFound
    from ones_slurm.model.settings import load_site
    from ones_slurm.slurm.cli_client import CommandClient

    columns = choose(COLUMNS, format)
    settings = load_site(site)
    wanted = {word.strip() for word in partition.split(",")} if partition else set()
    every = partition_rows(CommandClient().snapshot(), settings)
    rows = [row for row in every if not wanted or row.partition in wanted]
    if format is None and len({kind for row in every for kind in row.gpu_types}) > 1:
        columns = [column for column in COLUMNS if column.default or column.name == "gputype"]
    if wanted and not rows:
        raise NotFound(f"there is no partition {partition}", hint="`ones info` lists them")
    state, silent = _state(settings)
    if as_json:
        told: dict[str, Any] = {"version": 1, "onesd": state, "partitions": rows}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=1))
        return
    if not noheader:
        click.echo(f"onesd  {_said(state) if state is not None else silent}\n")
    show(columns, rows, header=not noheader)


def partition_rows(snapshot: Snapshot, site: Site) -> list[PartitionRow]:
    """The partitions by name."""
    from ones_slurm.model.cluster import JobState

    held: dict[str, int] = {}  # GPUs taken on each node; jobs may share one
    for job in snapshot.jobs:
        for node_name in job.nodes:
            held[node_name] = held.get(node_name, 0) + job.gpus_per_node
    names = sorted({name for node in snapshot.nodes for name in node.partitions})
    found = []
    for name in names:
        nodes = [node for node in snapshot.nodes if name in node.partitions]
        settings = site.partitions.get(name)
        per_node = settings.gpus_per_node if settings is not None else 0
        jobs = [job for job in snapshot.jobs if name in job.partition.split(",")]
        taken = [node for node in nodes if node.name in held]
        idle = [node for node in nodes if node.name not in held and node.usable]
        all_gpus = sum(node.gpus or per_node for node in nodes)
        allocated = sum(held[node.name] or per_node for node in taken)
        types: Counter[str] = Counter()
        for node in nodes:
            types[node.gpu_type] += node.gpus or per_node
        usable = sum(node.gpus or per_node for node in (*taken, *idle))
        found.append(
            PartitionRow(
                partition=name,
                elastic=settings is None or settings.elastic,
                nodes_allocated=len(taken),
                nodes_idle=len(idle),
                nodes_other=len(nodes) - len(taken) - len(idle),
                gpus_allocated=allocated,
                gpus_idle=max(usable - allocated, 0),
                gpus_other=all_gpus - usable,
                running=sum(job.state is not JobState.PENDING for job in jobs),
                pending=sum(job.state is JobState.PENDING for job in jobs),
                wishing=sum("ones:" in job.comment for job in jobs),
                gpu_types={kind: gpus for kind, gpus in sorted(types.items()) if kind and gpus},
            )
        )
    return found


def _state(site: Site) -> tuple[State | None, str]:
    """What onesd says of itself, or why it says nothing."""
    from ones_slurm.daemon.answers import State
    from ones_slurm.model.errors import OnesError
    from ones_slurm.peer.client import Client

    try:
        return Client(site.daemon).get("/v1/status", State), ""
    except OnesError as error:
        return None, error.message


def _said(state: State) -> str:
    from ones_slurm.report.shown import show_duration

    ago = "" if state.last_tick_s is None else f", {show_duration(max(time.time() - state.last_tick_s, 0))} ago"
    words = f"{state.mode}, policy {state.policy}, tick {state.tick}{ago}: {state.elastic_jobs} elastic jobs, "
    words += f"{state.moves} moves under way"
    return f"{words}; {state.trouble}" if state.trouble else words
