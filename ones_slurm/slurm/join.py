"""One view out of two sources: what Slurm holds, and what the jobs say of themselves."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from ones_slurm.model.cluster import ClusterView, JobState, JobView, Move, NodeView
from ones_slurm.model.companion import companion_of
from ones_slurm.model.errors import UsageError
from ones_slurm.model.plan import Grow, Start
from ones_slurm.model.settings import Partition, Site
from ones_slurm.model.wire import Lent, Phase, Sync
from ones_slurm.model.wish import Wish, parse_wish
from ones_slurm.slurm.board import Word
from ones_slurm.slurm.client import JobRecord, NodeRecord, Snapshot
from ones_slurm.slurm.facts import OpenMove
from ones_slurm.slurm.loans import Companions, Lenders, as_shown
from ones_slurm.slurm.states import READY_REASONS

# A wrapper speaks at least every 30 s, the longest a long poll lasts; three in a row missed, and it is taken for gone.
SILENT_AFTER_S = 90.0


class Join:
    """The pieces that a view is made of; `moves` and `starts` are by job id.

    `can_lend` says of a job that speaks whether it can be given nodes while it trains.
    """

    def __init__(
        self,
        site: Site,
        words: Mapping[str, Word],
        moves: Mapping[str, OpenMove],
        starts: Mapping[str, Start],
        can_lend: Callable[[JobRecord, Sync], bool] = lambda _, __: False,
    ) -> None:
        self._site, self._words, self._moves, self._starts, self._can_lend = site, words, moves, starts, can_lend

    def view(self, snapshot: Snapshot, now_s: float, *, can_shrink: bool, can_requeue: bool) -> ClusterView:
        """The view at `now_s`. Linear in jobs and nodes."""
        holders = Counter(name for record in snapshot.jobs for name in record.nodes)
        shown = self._companions(snapshot.jobs)
        hidden = {job_id for one in shown.values() for job_id in one.hidden}
        jobs = [
            self._job(record, now_s, holders, shown.get(record.job_id, Companions()))
            for record in snapshot.jobs
            if record.job_id not in hidden and (record.nodes or record.state not in (JobState.DONE, JobState.FAILED))
        ]
        return ClusterView(
            now_s=now_s,
            nodes=tuple(sorted(map(self._node, snapshot.nodes), key=lambda node: node.name)),
            jobs=tuple(sorted(jobs, key=lambda job: (job.submit_s, job.job_id))),
            can_shrink=can_shrink,
            can_requeue=can_requeue,
            pause_s=(pauses := expected_pauses(self._site))["requeue"],
            pauses=pauses,
        )

    def _companions(self, jobs: tuple[JobRecord, ...]) -> dict[str, Companions]:
        """What is lent to running jobs, by job: it is shown as theirs, so that no node is counted twice."""
        lenders = Lenders(jobs)
        shown = {}
        for base in (lenders.bases[job_id] for job_id in lenders.base_ids if job_id in lenders.bases):
            word, move = self._words.get(base.job_id), self._moves.get(base.job_id)
            fresh = word is not None and word.sync.restarts >= base.restarts and base.state is JobState.RUNNING
            grows_to = move.action.generation if move is not None and isinstance(move.action, Grow) else None
            shown[base.job_id] = as_shown(lenders.of(base), word.sync if word and fresh else None, grows_to)
        return shown

    def _job(self, record: JobRecord, now_s: float, holders: Mapping[str, int], companions: Companions) -> JobView:
        job_id = record.job_id
        word, move, start = self._words.get(job_id), self._moves.get(job_id), self._starts.get(job_id)
        lent = tuple(Lent(one.job_id, one.nodes) for one in companions.part)
        nodes = tuple(dict.fromkeys([*record.nodes, *(name for loan in lent for name in loan.nodes)]))
        wish, wrong = wish_of(record.comment)
        pipeline = word.sync.pipeline if word is not None and wish is not None and wish.pipeline else None
        if wish is not None and pipeline is not None and not wish.devices:
            wish = msgspec.structs.replace(wish, devices=pipeline.devices)
        gpus_per_node = record.gpus_per_node or self._partition(record.partition).gpus_per_node
        why_rigid = ""
        if move is None:
            why_rigid = (
                wrong
                or self._why_never(record, wish, gpus_per_node)
                or _why_not_now(record, word, now_s)
                or next((f"it shares node {name} with another job" for name in nodes if holders[name] > 1), "")
            )
        fresh = word is not None and word.sync.restarts >= record.restarts and record.state is not JobState.PENDING
        batch = word.sync.batch if word is not None and fresh else start.batch if start is not None else 0
        return JobView(
            job_id=job_id,
            user=record.user,
            state=record.state,
            asked_nodes=record.asked_nodes,
            gpus_per_node=gpus_per_node,
            account=record.account,
            partition=record.partition,
            name=record.name,
            nodes=nodes,
            batch_host=record.batch_host,
            wish=wish,
            elastic=not why_rigid,
            why_rigid=why_rigid,
            requeueable=record.requeueable and record.batch,
            held=record.held or (record.state is JobState.PENDING and record.reason not in READY_REASONS),
            priority=record.priority,
            submit_s=record.submit_s,
            start_s=record.start_s,
            time_limit_s=record.time_limit_s,
            restarts=record.restarts,
            generation=max(word.sync.generation if word else 0, start.generation if start else 0),
            batch=batch,
            progress=word.sync.progress if word is not None else None,
            recipe=recipe_of(record.command),
            pipeline=pipeline,
            move=_move(move, len(nodes)) if move is not None else None,
            live=word is not None and fresh and word.sync.live,
            can_grow=word is not None and fresh and not why_rigid and self._can_lend(record, word.sync),
            lent=lent,
            idle=_idle(nodes, word.sync) if word is not None and fresh and move is None else (),
        )

    def _why_never(self, record: JobRecord, wish: Wish | None, gpus_per_node: int) -> str:
        if wish is None:
            base_id = companion_of(record.comment)
            return f"it lends its nodes to job {base_id}" if base_id else "its comment holds no ones: wish"
        if not record.batch or record.het or "[" in record.job_id:
            return "only batch jobs that stand alone are moved (no salloc, no heterogeneous job, no unsplit array)"
        if not self._partition(record.partition).elastic:
            return f"the site file keeps partition {record.partition} as it is"
        try:
            wish.node_bounds(record.asked_nodes, gpus_per_node)
        except UsageError as error:
            return f"its wish cannot be met: {error.message}"
        return ""

    def _node(self, record: NodeRecord) -> NodeView:
        counted = max((self._partition(name).gpus_per_node for name in record.partitions), default=0)
        return NodeView(record.name, record.gpus or counted, record.usable, record.gpu_type, record.partitions)

    def _partition(self, name: str) -> Partition:
        return self._site.partitions.get(name.partition(",")[0], Partition())


@functools.lru_cache(maxsize=20000)
def wish_of(comment: str) -> tuple[Wish | None, str]:
    """The wish in a comment, or why it cannot be read."""
    try:
        return parse_wish(comment), ""
    except UsageError as error:
        return None, f"its wish cannot be read: {error.message}"


def expected_pauses(site: Site) -> dict[str, float]:
    """Seconds without training by kind of move, as the site file has them."""
    costs = site.costs
    return {
        "requeue": costs.save_s + costs.start_s + costs.requeue_delay_s,
        "shrink": costs.save_s + costs.rescale_s,
        "rebatch": costs.rebatch_s,
        "grow": costs.rescale_s,
    }


def recipe_of(command: str) -> str:
    """A short name for a script and its arguments, which are of any length; empty where there is no script."""
    return hashlib.blake2b(command.encode(errors="replace"), digest_size=8).hexdigest() if command else ""


def _why_not_now(record: JobRecord, word: Word | None, now_s: float) -> str:
    """Why a job that could be moved cannot be moved at this moment."""
    if record.state is JobState.PENDING:
        return ""
    if record.state is not JobState.RUNNING:
        return f"it is {record.state}"
    if word is None or word.sync.restarts < record.restarts or now_s - word.heard_s > SILENT_AFTER_S:
        return "no wrapper (ones-run) answers for it"
    if word.sync.phase is not Phase.TRAINING:
        return f"its wrapper says {word.sync.phase}"
    return ""


def _idle(nodes: tuple[str, ...], sync: Sync) -> tuple[str, ...]:
    """Nodes of a job that trains on, by its own word, without them."""
    trains = sync.live and sync.phase is Phase.TRAINING
    return tuple(name for name in nodes if name not in sync.nodes) if trains and sync.nodes else ()


def _move(move: OpenMove, held: int) -> Move:
    action = move.action
    nodes = move.nodes if move.nodes is not None else held
    return Move(action.generation, str(action.__struct_config__.tag), move.stage, move.since_s, nodes)
