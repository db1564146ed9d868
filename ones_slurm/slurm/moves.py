"""How a job changes size, as a pure function from the facts to the next step.

Nothing is remembered that the facts can tell: the stage follows from Slurm's record and the wrapper's last word, so a
daemon that died in the middle goes on from wherever the job stands. Three rules hold whatever happens: nodes are taken
only from a job whose ranks have left for this very generation, nobody is left stopped, and nobody is left held.
"""

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Requeue, Start, Status
from ones_slurm.model.settings import Moves as Limits
from ones_slurm.model.wire import LoanAnswer, Order, Phase, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.facts import Facts, OpenMove
from ones_slurm.slurm.in_memory import goes_on, next_live_step, silent
from ones_slurm.slurm.steps import (
    LEAVING,
    QUEUED,
    RESIZING,
    STARTING,
    Finish,
    GiveBack,
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


def next_step(
    move: OpenMove,
    record: JobRecord | None,
    sync: Sync | None,
    *,
    standing: Order | None,
    now_s: float,
    limits: Limits,
    companions: tuple[JobRecord, ...] = (),
    answer: LoanAnswer | None = None,
) -> Step:
    """What is to be done next for this move; see `Facts`."""
    if record is None:
        return Finish(FAILED, "the job is gone")
    if sync is not None and sync.restarts < record.restarts:
        sync = None  # the word of a wrapper that is no more
    facts = Facts(
        move=move,
        record=record,
        sync=sync,
        standing=standing,
        limits=limits,
        now_s=now_s,
        companions=companions,
        answer=answer,
    )
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


def forgotten(move: OpenMove, record: JobRecord) -> bool:
    """Whether a slurmctld that was killed has gone back to before the release, and so perhaps to before other steps."""
    return move.stage == QUEUED and record.held_by_requeue and isinstance(move.action, Requeue)


def _of_waiting_job(facts: Facts) -> Step:  # noqa: PLR0911  (a list of rules, read from the top)
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


def _of_running_job(facts: Facts) -> Step:  # noqa: PLR0911  (a list of rules, read from the top)
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
    if goes_on(facts):
        return next_live_step(facts, sync)
    if sync.generation > action.generation:
        return facts.finish_training("the job did not wait for its order, and went on by itself")
    if sync.generation == action.generation:
        return _of_job_at_our_generation(facts, sync.phase)
    return _of_job_at_older_generation(facts, sync.phase)


def _of_silent_job(facts: Facts) -> Step:
    """The job runs, and no wrapper has spoken since it started or since this daemon did."""
    if not isinstance(facts.action, Requeue):
        return silent(facts)
    came_up = facts.reached()
    stage, limit_s = (STARTING, facts.limits.start_timeout_s) if came_up else (LEAVING, facts.limits.leave_timeout_s)
    if facts.overdue(stage, limit_s):
        return Finish(FAILED, f"the job's wrapper said nothing for {limit_s:g} s")
    return facts.post(stage, go=came_up)


def _of_job_at_our_generation(facts: Facts, phase: Phase) -> Step:
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


def _change(facts: Facts) -> Step:
    """No rank runs, all is on disk: now Slurm may change the job."""
    action, record = facts.action, facts.record
    if isinstance(action, Requeue):
        if not record.requeueable:
            return TurnBack(RESIZING, REFUSED, "the job may not be requeued any more")
        lent = next((one for one in facts.companions if one.state in (JobState.PENDING, JobState.RUNNING)), None)
        return RequeueHold() if lent is None else GiveBack(lent.job_id)
    keep = facts.own_keep
    if not set(keep) <= set(record.nodes):
        return TurnBack(RESIZING, FAILED, f"the job lost {', '.join(sorted(set(keep) - set(record.nodes)))}")
    if record.batch_host and record.batch_host not in keep:
        return TurnBack(RESIZING, REFUSED, f"the batch host {record.batch_host} cannot be given back")
    return ShrinkTo(keep)


def _of_job_at_older_generation(facts: Facts, phase: Phase) -> Step:
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
