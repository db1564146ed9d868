"""How a job changes size, as a pure function from the facts to the next step.

Nothing is remembered that the facts can tell: the stage follows from Slurm's record and the wrapper's last word, so a
daemon that died in the middle goes on from wherever the job stands. Three rules hold whatever happens: nodes are taken
only from a job whose ranks have left for this very generation, nobody is left stopped, and nobody is left held.
"""

import msgspec

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Action, Requeue, Shrink, Start, Status
from ones_slurm.model.settings import Moves as Limits
from ones_slurm.model.wire import Order, Phase, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.steps import (
    LEAVING,
    QUEUED,
    RESIZING,
    STARTING,
    Finish,
    PostOrder,
    Release,
    RequeueHold,
    ShrinkTo,
    SizePending,
    StartNow,
    Step,
    TurnBack,
    Wait,
)

# Slurm looks at a job when it is released, and else only now and then: by then it must be past its begin time, the
# second after its requeue. One more second is for a clock that differs a little from slurmctld's (ours).
ELIGIBLE_WITHIN_S = 2.0

DONE, REFUSED, FAILED = Status.DONE, Status.REFUSED, Status.FAILED


class OpenMove(msgspec.Struct, frozen=True, kw_only=True):
    """An action under way.

    `restarts` is the job's count when the move was taken up (None until Slurm was asked), `tried` the names of the
    steps that Slurm has carried out or refused since then, `back` says why the job shall train on as it was.
    `left_in` is the run (restart count) in which the job was seen to have left for this generation.
    """

    action: Action
    restarts: int | None
    stage: str
    since_s: float
    tried: frozenset[str] = frozenset()
    back: TurnBack | None = None
    left_in: int | None = None

    @property
    def nodes(self) -> int | None:
        """The node count that the move leads to; None for one that keeps its nodes."""
        if isinstance(self.action, Shrink):
            return len(self.action.keep)
        return self.action.nodes if isinstance(self.action, Start | Requeue) else None


def next_step(
    move: OpenMove,
    record: JobRecord | None,
    sync: Sync | None,
    *,
    standing: Order | None,
    now_s: float,
    limits: Limits,
) -> Step:
    """What is to be done next for this move. `sync` is the wrapper's last word, `standing` the order that it has."""
    if record is None:
        return Finish(FAILED, "the job is gone")
    if sync is not None and sync.restarts < record.restarts:
        sync = None  # the word of a wrapper that is no more
    facts = _Facts(move=move, record=record, sync=sync, standing=standing, limits=limits, now_s=now_s)
    if record.state is JobState.DONE:
        reached = sync is not None and sync.generation >= move.action.generation
        return Finish(DONE if reached else REFUSED, "the job has finished")
    if record.state is JobState.FAILED:
        return Finish(FAILED, f"the job has ended: {' '.join(record.slurm_states) or 'failed'}")
    if record.state is JobState.PENDING and "COMPLETING" not in record.slurm_states:
        return _of_waiting_job(facts)
    if record.state is JobState.RUNNING:
        return _of_running_job(facts)
    return Wait(move.stage)


def gave_up(move: OpenMove, sync: Sync) -> bool:
    """Whether the wrapper had left for the move, waited in vain and trains on in its old generation.

    That ends the move, also while Slurm does not answer: the standing order would stop the job again and again.
    """
    older = sync.generation < move.action.generation
    return older and move.left_in == sync.restarts and sync.phase in (Phase.STARTING, Phase.TRAINING, Phase.LEAVING)


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a step depends on, and the few questions that are asked of it."""

    move: OpenMove
    record: JobRecord
    sync: Sync | None
    standing: Order | None
    limits: Limits
    now_s: float

    @property
    def action(self) -> Action:
        return self.move.action

    def restarted(self) -> bool:
        """Whether Slurm has started the job anew since the move was taken up."""
        return self.move.restarts is not None and self.record.restarts > self.move.restarts

    def reached(self) -> bool:
        """Whether the job holds what the move wants it to hold."""
        if isinstance(self.action, Shrink):
            return set(self.record.nodes) == set(self.action.keep)
        return self.move.nodes is None or len(self.record.nodes) == self.move.nodes

    def overdue(self, stage: str, limit_s: float) -> bool:
        """Whether the move has been in that stage for too long."""
        return self.move.stage == stage and self.now_s - self.move.since_s > limit_s

    def post(self, stage: str, *, go: bool) -> Step:
        """The order to leave, or to go on with what the job holds; nothing if it stands already."""
        batch, lr_scale = self.action.batch, self.action.lr_scale
        if go and self.move.back is not None and self.sync is not None and batch:
            lr_scale *= self.sync.batch / batch or 1.0  # the linear rule backwards: the factor of the batch it had
            batch = self.sync.batch
        order = Order(
            generation=self.action.generation,
            kind=str(self.action.__struct_config__.tag),
            go=go,
            batch=batch,
            lr_scale=lr_scale,
            nodes=self.record.nodes if go else (),
            reason=self.move.back.reason if self.move.back is not None else self.action.reason,
        )
        return Wait(stage) if order == self.standing else PostOrder(stage, order)

    def finish_training(self, how: str) -> Finish:
        """The job trains: as it was meant to, or not."""
        if self.move.back is not None:
            return Finish(self.move.back.status, self.move.back.reason)
        if self.reached():
            return Finish(DONE, how)
        return Finish(REFUSED, f"{how} with {len(self.record.nodes)} nodes")


def _of_waiting_job(facts: _Facts) -> Step:  # noqa: PLR0911  (a list of rules, read from the top)
    """The job is pending: by our requeue, by somebody else's, or because it never started."""
    action, record, move = facts.action, facts.record, facts.move
    if isinstance(action, Start):
        if record.asked_nodes == action.nodes:
            return Finish(DONE, f"asks for {action.nodes} nodes")
        return Finish(move.back.status, move.back.reason) if move.back is not None else SizePending(action.nodes)
    if not isinstance(action, Requeue):
        return Finish(FAILED, "the job was put back in the queue by somebody else")
    size = (action.from_nodes or record.asked_nodes) if move.back is not None else action.nodes
    if record.asked_nodes != size and f"size {size}" not in move.tried:
        return SizePending(size)
    if facts.limits.skip_requeue_delay and "start_now" not in move.tried:
        return StartNow()
    if record.held:
        if move.stage == QUEUED:
            return Finish(REFUSED, "the job was held by somebody else while it waited")
        if facts.limits.skip_requeue_delay and 0 <= facts.now_s - record.submit_s < ELIGIBLE_WITHIN_S:
            return Wait(RESIZING)
        if "release" in move.tried and facts.overdue(RESIZING, facts.limits.start_timeout_s):
            return Finish(FAILED, "the job is held, and Slurm does not release it")
        return Release()
    if move.back is not None:
        return Finish(move.back.status, f"{move.back.reason}; it waits in the queue for {record.asked_nodes} nodes")
    if facts.overdue(QUEUED, facts.limits.start_timeout_s):
        return TurnBack(QUEUED, FAILED, f"did not start with {size} nodes within {facts.limits.start_timeout_s:g} s")
    return Wait(QUEUED)


def _of_running_job(facts: _Facts) -> Step:  # noqa: PLR0911  (a list of rules, read from the top)
    action, sync = facts.action, facts.sync
    if isinstance(action, Start):
        told = "the job has started"
        return (
            Finish(DONE, told) if facts.reached() else Finish(REFUSED, f"{told} with {len(facts.record.nodes)} nodes")
        )
    if isinstance(action, Requeue) and facts.restarted() and not facts.reached():
        back = facts.move.back
        if back is not None:
            return Finish(back.status, back.reason)
        return Finish(FAILED, f"the job was started with {len(facts.record.nodes)} nodes instead of {action.nodes}")
    if sync is None:
        return _of_silent_job(facts)
    if sync.declined is not None and sync.declined.generation == action.generation:
        return Finish(REFUSED, f"the job declined: {sync.declined.reason}")
    if sync.phase is Phase.FAILED:
        return Finish(FAILED, "the training failed")
    if sync.phase is Phase.FINISHED:
        return Finish(REFUSED, "the training finished first")
    if sync.generation > action.generation:
        return facts.finish_training("the job did not wait for its order, and went on by itself")
    if sync.generation == action.generation:
        return _of_job_at_our_generation(facts, sync.phase)
    return _of_job_at_older_generation(facts, sync.phase)


def _of_silent_job(facts: _Facts) -> Step:
    """The job runs, and no wrapper has spoken since it started or since this daemon did."""
    came_up = isinstance(facts.action, Requeue) and facts.reached()
    stage, limit_s = (STARTING, facts.limits.start_timeout_s) if came_up else (LEAVING, facts.limits.leave_timeout_s)
    if facts.overdue(stage, limit_s):
        return Finish(FAILED, f"the job's wrapper said nothing for {limit_s:g} s")
    return facts.post(stage, go=came_up)


def _of_job_at_our_generation(facts: _Facts, phase: Phase) -> Step:
    """The wrapper waits to enter our generation (left), enters it (starting) or is in it (training)."""
    if phase is Phase.TRAINING:
        return facts.finish_training("trains")
    if phase is Phase.LEAVING:
        limit_s = facts.limits.leave_timeout_s
        return Finish(FAILED, f"the job leaves for {limit_s:g} s") if facts.overdue(LEAVING, limit_s) else Wait(LEAVING)
    if facts.overdue(STARTING, facts.limits.start_timeout_s):
        return Finish(FAILED, f"the job did not train within {facts.limits.start_timeout_s:g} s of its order")
    if phase is Phase.STARTING or facts.move.back is not None or facts.reached():
        return facts.post(STARTING, go=True)
    return _change(facts)


def _change(facts: _Facts) -> Step:
    """No rank runs, all is on disk: now Slurm may change the job."""
    action, record = facts.action, facts.record
    if isinstance(action, Requeue):
        if not record.requeueable:
            return TurnBack(RESIZING, REFUSED, "the job may not be requeued any more")
        return RequeueHold()
    keep = action.keep if isinstance(action, Shrink) else record.nodes
    if not set(keep) <= set(record.nodes):
        return TurnBack(RESIZING, FAILED, f"the job lost {', '.join(sorted(set(keep) - set(record.nodes)))}")
    if record.batch_host and record.batch_host not in keep:
        return TurnBack(RESIZING, REFUSED, f"the batch host {record.batch_host} cannot be given back")
    return ShrinkTo(keep)


def _of_job_at_older_generation(facts: _Facts, phase: Phase) -> Step:
    """The wrapper has not left yet, or has just come up after the requeue and asks for its order."""
    back, limits = facts.move.back, facts.limits
    came_up = isinstance(facts.action, Requeue) and facts.reached()
    if phase is Phase.TRAINING and (came_up or back is not None):
        return facts.finish_training("trains")
    if back is not None or (came_up and phase is Phase.STARTING):
        if facts.overdue(STARTING, limits.start_timeout_s):
            return Finish(FAILED, f"the job did not train within {limits.start_timeout_s:g} s of its order")
        return facts.post(STARTING, go=True)
    if facts.overdue(LEAVING, limits.leave_timeout_s):
        return TurnBack(LEAVING, FAILED, f"the job did not stop within {limits.leave_timeout_s:g} s of its order")
    return facts.post(LEAVING, go=False)
