"""What the live page shows to one reader: the cluster as the daemon sees it, less what Slurm would not show them."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from ones_slurm.daemon.answers import JobRow, State
from ones_slurm.engine.loop import Latest
from ones_slurm.engine.records import Decided
from ones_slurm.model.adoption import Rung
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView
from ones_slurm.model.plan import Action, Reallocate, Shrink
from ones_slurm.report.page_plots import colour_of

# Ours: a page with more is not read, and browsers crawl; what is left out is counted.
MOST_NODES = 2000
MOST_JOBS = 500
MOST_DECIDED = 40
# Ours: a finish that lies further away is no prediction, and soon no date either.
_LONGEST_ETA_S = 366 * 86400.0


class Reader(msgspec.Struct, frozen=True):
    """What somebody may see: all jobs, or those of `own` alone; and the nodes, or not."""

    own: str | None
    nodes: bool


class Square(msgspec.Struct, frozen=True):
    """One GPU on the map: `look` is a class of the style sheet."""

    look: str
    says: str


class NodeCell(msgspec.Struct, frozen=True):
    """One node of the map."""

    name: str
    squares: tuple[Square, ...]
    jobs: tuple[str, ...]
    gpu_type: str


class JobLine(msgspec.Struct, frozen=True):
    """One job of the table: what `ones queue` says, and its colour."""

    row: JobRow
    colour: int


class PlanLine(msgspec.Struct, frozen=True):
    """What the policy wants for a job, beside what it has."""

    job_id: str
    nodes_now: int
    nodes: int
    batch: int
    reason: str
    action: str


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on the page. `gpu_types`: GPUs held and all GPUs by type, empty unless the cluster has several."""

    state: State
    looked: str
    now_s: float
    gpus: int
    gpus_held: int
    gpus_out: int
    gpu_types: tuple[tuple[str, int, int], ...]
    running: int
    waiting: int
    moving: int
    nodes: tuple[NodeCell, ...] | None
    nodes_left_out: int
    jobs: tuple[JobLine, ...]
    jobs_left_out: int
    plan: tuple[PlanLine, ...]
    decided: tuple[Decided, ...]
    own: str | None


def page_view(
    latest: Latest, rows: Sequence[JobRow], state: State, decided: Sequence[Decided], reader: Reader
) -> PageView:
    """Puts the page together from one tick; `rows` and `decided` are everybody's."""
    view = latest.view or ClusterView(0.0, (), ())
    seen = {row.job_id: row for row in rows if reader.own is None or row.user == reader.own}
    jobs = {job.job_id: job for job in view.jobs}
    actions = {action.job_id: action for action in latest.actions if action.job_id in seen}
    mine = [row for row in rows if row.job_id in seen]
    held = _held(view)
    advised = tuple(one for one in latest.plan.advice if one.job_id in jobs and jobs[one.job_id].rung is Rung.ADVISE)
    advised_ids = {one.job_id for one in advised}
    lines = tuple(JobLine(row, colour_of(row.job_id)) for row in mine[:MOST_JOBS])
    return PageView(
        state=state,
        looked=moment(view.now_s) if latest.view is not None else "not yet",
        now_s=view.now_s,
        gpus=sum(node.gpus for node in view.nodes),
        gpus_held=sum(job.gpus for job in view.jobs),
        gpus_out=sum(node.gpus for node in view.nodes if not node.usable and not held[node.name]),
        gpu_types=_by_type(view, held),
        running=sum(row.state == JobState.RUNNING.value for row in mine),
        waiting=sum(row.state == JobState.PENDING.value for row in mine),
        moving=sum(row.move is not None for row in mine),
        nodes=tuple(_cell(node, held[node.name], seen) for node in view.nodes[:MOST_NODES]) if reader.nodes else None,
        nodes_left_out=max(len(view.nodes) - MOST_NODES, 0),
        jobs=lines,
        jobs_left_out=max(len(mine) - MOST_JOBS, 0),
        plan=tuple(
            PlanLine(
                target.job_id,
                len(jobs[target.job_id].nodes) if target.job_id in jobs else 0,
                target.nodes,
                target.batch,
                target.reason,
                "advice" if target.job_id in advised_ids else action_on(actions.get(target.job_id)),
            )
            for target in (*latest.plan.targets, *advised)[: MOST_JOBS * 2]
            if target.job_id in seen
        )[:MOST_JOBS],
        decided=tuple(_news([entry for entry in decided if reader.own is None or entry.job_id in seen]))[:MOST_DECIDED],
        own=reader.own,
    )


def action_on(action: Action | None) -> str:
    """The move that the last tick began, or would have begun, in a few words; `-` for none."""
    if action is None:
        return "-"
    batch = f", batch {action.batch}" if action.batch else ""
    if isinstance(action, Shrink):
        return f"shrink to {len(action.keep)}{batch}"
    if isinstance(action, Reallocate):
        return f"{sum(gpus for _, gpus in action.allocation)} GPUs{batch}"
    kind, nodes = type(action).__name__.lower(), getattr(action, "nodes", None)
    return f"{kind} at {nodes}{batch}" if isinstance(nodes, int) else f"{kind}{batch}"


def moment(at_s: float | None) -> str:
    """Local time: the clock alone for today, with the day else; `-` for none, and for what is no date."""
    now_s = time.time()
    if at_s is None or at_s > now_s + _LONGEST_ETA_S:
        return "-"
    at = datetime.fromtimestamp(at_s)
    return at.strftime("%H:%M:%S" if at.date() == datetime.fromtimestamp(now_s).date() else "%Y-%m-%d %H:%M")


def _news(decided: Iterable[Decided]) -> Iterator[Decided]:
    """All moves, and of the ticks at which a job stayed as it was the last one before the next move; newest first."""
    told: set[str] = set()
    for entry in decided:
        if entry.kind is not None:
            told.discard(entry.job_id)
            yield entry
        elif entry.job_id not in told:
            told.add(entry.job_id)
            yield entry


def _held(view: ClusterView) -> defaultdict[str, list[tuple[JobView, int]]]:
    """By node, who holds how many of its GPUs; a job that counts none holds one square, so that it can be seen."""
    found: defaultdict[str, list[tuple[JobView, int]]] = defaultdict(list)
    for job in view.jobs:
        for name, count in job.allocation or tuple((name, job.gpus_per_node or 1) for name in job.nodes):
            found[name].append((job, count))
    return found


def _squares(node: NodeView, held: Sequence[tuple[JobView, int]]) -> int:
    """One a GPU; a node without any has one, so that it can be seen."""
    return max(node.gpus, sum(count for _, count in held), 1)


def _cell(node: NodeView, held: Sequence[tuple[JobView, int]], seen: Mapping[str, JobRow]) -> NodeCell:
    squares: list[Square] = []
    for job, count in held:
        shown = job.job_id in seen
        says = f"job {job.job_id}, {job.name} of {job.user}" if shown else "a job of another user"
        squares += [Square(f"c{colour_of(job.job_id)}" if shown else "other", says)] * count
    idle = Square("free", "free") if node.usable else Square("out", "not usable now")
    here = tuple(job.job_id for job, _ in held if job.job_id in seen)
    return NodeCell(node.name, tuple(squares) + (idle,) * (_squares(node, held) - len(squares)), here, node.gpu_type)


def _by_type(view: ClusterView, held: Mapping[str, list[tuple[JobView, int]]]) -> tuple[tuple[str, int, int], ...]:
    """Each type with the GPUs that jobs hold and all there are; nothing where all are alike."""
    if len({node.gpu_type for node in view.nodes if node.gpus}) < 2:
        return ()
    every: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for node in view.nodes:
        every[node.gpu_type] += node.gpus
        taken[node.gpu_type] += min(sum(count for _, count in held.get(node.name, ())), node.gpus)
    return tuple((kind or "no type", taken[kind], gpus) for kind, gpus in sorted(every.items()) if gpus)
