"""A site's own accounting, replayed: what another policy would have made of the same jobs."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate

import msgspec

from ones_slurm.model.cluster import NodeView
from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Site
from ones_slurm.model.wish import Bounds, Wish, parse_wish
from ones_slurm.report.segments import JobHistory, histories
from ones_slurm.sim.job import Submission
from ones_slurm.sim.rigid import EXPONENT, TracedRun
from ones_slurm.sim.trace import Row
from ones_slurm.slurm.client import AccountingRow

# A shorter job is over before a move pays (ours; a move costs about a minute).
SHORTEST_ELASTIC_S = 1800.0
# Why a job is taken as elastic.
WISHED = "its comment holds a wish"
ASSUMED = f"it held whole nodes for {SHORTEST_ELASTIC_S / 60:g} min or more (--assume)"


class Month(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a dump. `left_out` and `rigid` count jobs by the reason, `elastic` holds ids by the reason.

    `mean_s` and `waiting_s` are what really happened to the jobs in `work`, in seconds.
    """

    nodes: tuple[NodeView, ...]
    work: tuple[Submission, ...]
    elastic: dict[str, tuple[str, ...]]
    left_out: dict[str, int]
    rigid: dict[str, int]
    assumed: tuple[str, ...]
    mean_s: float
    waiting_s: float


def read_month(rows: Sequence[AccountingRow], site: Site, *, now_s: float, assume: float = 0.0) -> Month:
    """The jobs and nodes of a dump.

    A job is elastic when its comment holds a wish; with `assume` > 1 also any other that held whole nodes for half an
    hour or more, between one node and `assume` times what it had. Raises `UsageError` when no job is left.
    """
    per_node = {name: partition.gpus_per_node for name, partition in site.partitions.items() if partition.gpus_per_node}
    last = {row.job_id: row for row in rows}
    left_out: Counter[str] = Counter()
    rigid: Counter[str] = Counter()
    work: list[Submission] = []
    elastic: dict[str, list[str]] = defaultdict(list)
    really: list[tuple[float, float]] = []
    found = histories(rows, now_s=now_s, gpus_per_node=per_node)
    nodes = _nodes(found, per_node)
    zero_s = min((job.segments[0].submit_s for job in found), default=0)
    for job in found:
        ran = [segment for segment in job.segments if segment.start_s is not None and segment.duration_s > 0]
        if not ran or not ran[0].gpus:
            left_out["it never started" if not ran else "it had no GPU"] += 1
            continue
        if any(segment.open for segment in ran):
            left_out["it still runs"] += 1
            continue
        row = last[job.job_id]
        wish, reason = _wish(job, row, nodes, site, assume)
        if wish is None:
            rigid[reason] += 1
        else:
            elastic[reason].append(job.job_id)
        work.append(_submission(job, row, wish, reason if wish is None else "", zero_s))
        submit_s = job.segments[0].submit_s
        really.append((ran[-1].end_s - submit_s, (ran[0].start_s or submit_s) - submit_s))
    if not work:
        why = ", ".join(f"{count}: {reason}" for reason, count in left_out.items()) or "no job at all"
        raise UsageError(
            f"no job is left to be simulated ({why})", hint="dump a month: sacct -D -P -X -a -S now-30days"
        )
    return Month(
        nodes=tuple(nodes.values()),
        work=tuple(work),
        elastic={reason: tuple(ids) for reason, ids in elastic.items()},
        left_out=dict(left_out),
        rigid=dict(rigid),
        assumed=tuple(_assumptions(assume)),
        mean_s=math.fsum(took_s for took_s, _ in really) / len(really),
        waiting_s=math.fsum(waited_s for _, waited_s in really) / len(really),
    )


def rows_of(month: Month) -> list[Row]:
    """The same jobs as a trace, for clusters of any kind; how they were requeued and resized is left behind."""
    rows = []
    for job in month.work:
        sizes = job.wish.gpus if job.wish is not None else None
        rows.append(
            Row(
                job_id=job.job_id,
                submit_s=job.submit_s,
                gpus=job.gpus,
                duration_s=job.begin().total,
                low_gpus=sizes.low if sizes is not None else 0,
                high_gpus=sizes.high if sizes is not None else 0,
                time_limit_s=job.time_limit_s or 0.0,
                user=job.user,
                partition=job.partition,
            )
        )
    return rows


def _assumptions(assume: float) -> Iterable[str]:
    yield "the nodes are those that any job of the dump held, all of them up all the time"
    yield "a node has the most GPUs that jobs held on it at a time, or as many as the site file says"
    yield "every job would have taken as long again on as many GPUs, whatever its place and their type"
    yield "a job that was requeued or resized does all of its work, first at the size that it began with"
    yield f"on n times as many GPUs a job is n^{EXPONENT:g} times as fast"
    yield "a job's time limit bounds it as it did; the queue goes by submission with backfill, and knows no priorities"
    if assume > 1:
        yield f"jobs without a wish that held whole nodes for {SHORTEST_ELASTIC_S / 60:g} min or more could be moved"


def _wish(  # noqa: PLR0911  (a list of rules, read from the top)
    job: JobHistory, row: AccountingRow, nodes: dict[str, NodeView], site: Site, assume: float
) -> tuple[Wish | None, str]:
    """Between which sizes a job may be moved, if at all, and why."""
    first = next(segment for segment in job.segments if segment.start_s is not None and segment.duration_s > 0)
    partition = site.partitions.get(first.partition)
    if partition is not None and not partition.elastic:
        return None, f"partition {first.partition} is not elastic"
    held = [nodes[name].gpus for name in first.nodes if name in nodes]
    whole = bool(held) and sum(held) == first.gpus and len(set(held)) == 1
    if not whole:
        return None, "it held a part of a node"
    try:
        wish = parse_wish(row.comment)
    except UsageError:
        return None, "its wish cannot be read"
    if wish is not None:
        try:
            bounds = wish.node_bounds(len(held), held[0])
        except UsageError:
            return None, "its wish cannot be met on its nodes"
        return Wish(nodes=bounds, gpus=Bounds(bounds.low * held[0], bounds.high * held[0]), batch=wish.batch), WISHED
    if assume <= 1:
        return None, "it has no wish"
    if math.fsum(segment.duration_s for segment in job.segments) < SHORTEST_ELASTIC_S:
        return None, "it was over too soon to be moved"
    most = max(math.floor(len(held) * assume), 1)
    return Wish(nodes=Bounds(1, most), gpus=Bounds(held[0], most * held[0])), ASSUMED


def _submission(job: JobHistory, row: AccountingRow, wish: Wish | None, reason: str, zero_s: int) -> Submission:
    ran = [segment for segment in job.segments if segment.start_s is not None and segment.duration_s > 0]
    gpus = ran[0].gpus
    duration_s = math.fsum(segment.duration_s * math.pow(segment.gpus / gpus, EXPONENT) for segment in ran)
    return Submission(
        job_id=job.job_id,
        submit_s=float(job.segments[0].submit_s - zero_s),
        gpus=gpus,
        nodes=len(ran[0].nodes),
        begin=partial(TracedRun, duration_s, gpus, talks=wish is not None),
        kind=ran[0].name,
        wish=wish,
        time_limit_s=max(row.time_limit_s or duration_s, duration_s),
        requeueable=wish is not None,
        user=job.user,
        account=ran[0].account,
        partition=ran[0].partition,
        includes_start=True,
        why_rigid=reason,
    )


def _nodes(found: Sequence[JobHistory], per_node: dict[str, int]) -> dict[str, NodeView]:
    """Every node that a job held, with the most GPUs that jobs had there at a time, and the partitions used on it."""
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    least: dict[str, int] = defaultdict(int)
    partitions: dict[str, set[str]] = defaultdict(set)
    for segment in (segment for job in found for segment in job.segments if segment.start_s is not None):
        held = -(-segment.gpus // max(len(segment.nodes), 1))
        for name in segment.nodes:
            changes[name] += [(segment.start_s or 0, held), (segment.end_s, -held)]
            least[name] = max(least[name], per_node.get(segment.partition, 0))
            partitions[name].add(segment.partition)
    # At one moment those who go are gone before others come.
    gpus = {name: max(least[name], *accumulate(held for _, held in sorted(changes[name]))) for name in sorted(changes)}
    return {
        name: NodeView(name, count, usable=True, partitions=tuple(sorted(partitions[name])))
        for name, count in gpus.items()
        if count
    }
