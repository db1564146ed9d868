"""The desk behind the door: answers put together from the engine's last tick, the board and the journal."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping

from ones_slurm import __version__
from ones_slurm.daemon.answers import JobRow, PlanNow, Queue, State, Why
from ones_slurm.daemon.control import ControlFile
from ones_slurm.daemon.metrics import Metrics
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.loop import Latest
from ones_slurm.engine.records import Decided
from ones_slurm.model.adoption import Control, Rung
from ones_slurm.model.cluster import JobState, JobView
from ones_slurm.model.errors import NotFound, Unreachable
from ones_slurm.model.plan import Target
from ones_slurm.model.settings import Site
from ones_slurm.model.wire import LoanAnswer, Loans, Reply, Sync
from ones_slurm.model.wish import format_wish
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.client import SlurmClient

# Ours: whoever asks about a job that left Slurm's memory longer ago than this asks the report.
_ACCOUNTING_BACK_S = 7 * 86400.0


class Desk:
    """Read by the door's thread, written by the engine's: each field is replaced as a whole, never changed.

    `latest` gives the last tick at any time. `client` is None until Slurm has answered for the first time.
    """

    def __init__(
        self,
        site: Site,
        *,
        mode: str,
        owner: str | None,
        control: ControlFile,
        board: Board,
        metrics: Metrics,
        latest: Callable[[], Latest],
    ) -> None:
        self._site, self._mode, self._owner, self._control = site, mode, owner, control
        self._board, self._metrics, self._latest = board, metrics, latest
        self._started_s = time.time()
        self._rows: tuple[Latest, dict[str, JobRow]] | None = None
        # Until Slurm has answered nobody knows what it keeps private, so everything is.
        self.private_data = frozenset({"jobs", "nodes"})
        self.client: SlurmClient | None = None
        self.slurm_version = ""

    @property
    def site_name(self) -> str:
        """What the site file calls this cluster."""
        return self._site.name

    def latest(self) -> Latest:
        """The last tick; another one each time that there is something new."""
        return self._latest()

    def decided(self, most: int) -> tuple[Decided, ...]:
        """The last decisions on any job, the newest first; reads the disk."""
        try:
            with Journal.read(self._site.daemon.journal) as journal:
                return tuple(journal.recent(most))
        except NotFound:  # it is only being made
            return ()

    def owner(self, job_id: str) -> str | None:
        """The user of a job of the latest view."""
        row = self._by_id().get(job_id)
        return row.user if row is not None else None

    def look_up_owner(self, job_id: str) -> str | None:
        """The user of a job that Slurm or its accounting knows. Raises `Unreachable`."""
        if self.client is None:
            raise Unreachable("Slurm has not answered onesd yet", hint="`ones doctor` shows why")
        try:
            return self.client.job(job_id).user
        except NotFound:
            since_s = time.time() - _ACCOUNTING_BACK_S
            rows = self.client.accounting(since_s=since_s, job_ids=[job_id])
            return rows[-1].user if rows else None

    def accept(self, job_id: str, sync: Sync) -> None:
        """Takes down what a job says of itself."""
        self._board.put(job_id, sync, time.time())

    def reply(self, job_id: str) -> tuple[Reply, bool]:
        """The standing order, and whether it is to be told at once, because the job does not follow it yet.

        Where jobs submit their companions themselves, with the one that is wanted.
        """
        loan = self._board.loans.of_job(job_id) if self._site.moves.companions == "job" else None
        return Reply(self._board.order(job_id), loan), self._board.unfollowed(job_id) is not None

    def loans(self, user: str) -> Loans:
        """The companions that this user's agent is to submit; none where agents have no say."""
        return Loans(self._board.loans.of_user(user, time.time()) if self._site.moves.companions == "agent" else ())

    def take_answer(self, job_id: str, answer: LoanAnswer) -> None:
        """What became of a companion that the job or its user's agent was to submit."""
        self._board.loans.answer(job_id, answer)
        self._board.stir(job_id)

    def listen(self, job_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Has `wake` called when the job's order changes."""
        return self._board.listen(job_id, wake)

    def queue(self) -> Queue:
        """Every unfinished job."""
        view = self._latest().view
        return Queue(
            jobs=tuple(self._by_id().values()),
            taken_s=view.now_s if view is not None else None,
            gpu_types=tuple(sorted({node.gpu_type for node in view.nodes if node.gpu_type})) if view else (),
        )

    def job(self, job_id: str) -> JobRow | None:
        """One unfinished job."""
        return self._by_id().get(job_id)

    def why(self, job_id: str) -> Why:
        """The journal's story of a job; reads the disk."""
        with Journal.read(self._site.daemon.journal) as journal:
            return Why(
                job_id=job_id,
                story=tuple(journal.story(job_id)),
                moves=tuple(journal.moves(job_id)),
                holdings=tuple(journal.holdings(job_id)),
                points=tuple(journal.points(job_id)),
            )

    def plan(self) -> PlanNow:
        """The latest plan and what follows from it."""
        latest = self._latest()
        return PlanNow(
            tick=latest.tick,
            taken_s=latest.view.now_s if latest.view is not None else None,
            policy=self._site.policy.name,
            targets=latest.plan.targets,
            actions=latest.actions,
            advice=latest.plan.advice,
        )

    def tell(self, word: Control, by: str) -> State:
        """Takes down what an administrator wants from now on; writes to the disk. Raises `Failed`."""
        self._control.tell(word, by)
        return self.state()

    def state(self) -> State:
        """The daemon itself."""
        latest, standing = self._latest(), self._control.standing
        jobs = latest.view.jobs if latest.view is not None else ()
        moves, on_loan = sum(job.move is not None for job in jobs), sum(bool(job.lent) for job in jobs)
        looked = latest.view is not None and latest.view.draining and not latest.actions
        return State(
            program=f"onesd {__version__}",
            mode=self._mode,
            policy=self._site.policy.name,
            seed=self._site.policy.seed,
            interval_s=self._site.engine.interval_s,
            started_s=self._started_s,
            tick=latest.tick,
            last_tick_s=latest.view.now_s if latest.view is not None else None,
            tick_took_s=latest.took_s,
            jobs=len(jobs),
            elastic_jobs=sum(job.elastic for job in jobs),
            moves=moves,
            slurm_version=self.slurm_version,
            trouble=latest.trouble,
            owner=self._owner,
            control=standing.word,
            control_by=standing.by,
            control_since_s=standing.since_s,
            drained=standing.word is Control.DRAIN and looked and not moves and not on_loan,
            on_loan=on_loan,
            rungs=dict(Counter(str(job.rung) for job in jobs if job.wish is not None)),
            quiet=self._site.adoption.quiet_window(time.time()),
        )

    def metrics(self) -> bytes:
        """The page for Prometheus."""
        return self._metrics.page()

    def _by_id(self) -> dict[str, JobRow]:
        """The rows of the latest view, put together once a tick."""
        latest = self._latest()
        if self._rows is None or self._rows[0] is not latest:
            reasons = {decision.job_id: decision.reason for decision in latest.decisions}
            jobs = latest.view.jobs if latest.view is not None else ()
            wanted = {target.job_id: target for target in (*latest.plan.targets, *latest.plan.advice)}
            now_s = latest.view.now_s if latest.view is not None else 0.0
            types = {node.name: node.gpu_type for node in latest.view.nodes} if latest.view is not None else {}
            rows = (_row(job, reasons.get(job.job_id, ""), wanted.get(job.job_id), now_s, types) for job in jobs)
            self._rows = (latest, {row.job_id: row for row in rows})
        return self._rows[1]


def _row(job: JobView, reason: str, target: Target | None, now_s: float, types: Mapping[str, str]) -> JobRow:
    progress = job.progress
    total = progress.total_samples if progress is not None else None
    shown = target is not None and job.rung in (Rung.ADVISE, Rung.ACT)
    nodes, batch = (target.nodes, target.batch or job.batch) if target and shown else (len(job.nodes), job.batch)
    moves = (nodes, batch) != (len(job.nodes), job.batch)
    return JobRow(
        job_id=job.job_id,
        partition=job.partition,
        name=job.name,
        user=job.user,
        state=job.state.value,
        nodes=len(job.nodes) or job.asked_nodes,
        node_list=job.nodes,
        gpus=job.gpus or job.asked_nodes * job.gpus_per_node,
        batch=job.batch,
        generation=job.generation,
        restarts=job.restarts,
        elastic=job.elastic,
        wish=format_wish(job.wish) if job.wish is not None else None,
        done=min(progress.samples / total, 1.0) if progress is not None and total else None,
        epoch=progress.epoch if progress is not None else None,
        step=progress.step if progress is not None else None,
        samples_per_s=progress.samples_per_s if progress is not None else None,
        loss=progress.loss if progress is not None else None,
        move=f"{job.move.kind}:{job.move.stage}" if job.move is not None else None,
        reason=reason or job.why_rigid,
        submit_s=job.submit_s,
        start_s=job.start_s,
        eta_s=_eta_s(job, now_s),
        next_nodes=nodes if moves else None,
        next_batch=batch if moves else None,
        rung=job.rung,
        gpu_types=_gpu_types(job, types),
    )


def _gpu_types(job: JobView, types: Mapping[str, str]) -> dict[str, int]:
    """The GPUs that a job holds by the type of their nodes; those of no type are left out."""
    held: Counter[str] = Counter()
    for name, gpus in job.allocation or [(name, job.gpus_per_node) for name in job.nodes]:
        held[types.get(name, "")] += gpus
    return {kind: gpus for kind, gpus in sorted(held.items()) if kind and gpus}


def _eta_s(job: JobView, now_s: float) -> float | None:
    """When a job that trains will be done at its present speed, by its own account; None where it says too little."""
    progress = job.progress
    if job.state is not JobState.RUNNING or progress is None or progress.total_samples is None:
        return None
    left, rate = max(progress.total_samples - progress.samples, 0), progress.samples_per_s
    return now_s + left / rate if math.isfinite(rate) and rate > 0 else None
