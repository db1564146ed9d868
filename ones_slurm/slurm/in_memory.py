"""The rules for a job that changes its size while it trains, as pure functions from the facts to the next step.

One rule holds whatever happens: nodes are taken, and companions ended, only when the job's own word for this very
generation says that it trains without them, or before it was ever told of them.
"""

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Grow, Rebatch, Shrink, Status
from ones_slurm.model.wire import Order, Phase, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.facts import Facts
from ones_slurm.slurm.loans import loan_for
from ones_slurm.slurm.states import READY_REASONS
from ones_slurm.slurm.steps import (
    JOINING,
    LEAVING,
    LENDING,
    STARTING,
    SWITCHING,
    Finish,
    GiveBack,
    Lend,
    PostOrder,
    ShrinkTo,
    Step,
    TurnBack,
    Wait,
)

DONE, REFUSED, FAILED = Status.DONE, Status.REFUSED, Status.FAILED
# A companion's reason to wait may be about to change when it has just been submitted (ours).
REASON_HOLDS_S = 5.0


def goes_on(facts: Facts) -> bool:
    """Whether the move is made without a stop. A job that had to leave all the same is moved as any other."""
    if isinstance(facts.action, Grow):
        return True
    sync, told = facts.sync, facts.told
    if not isinstance(facts.action, Shrink | Rebatch) or sync is None or facts.move.back is not None:
        return False
    return (told.live if told is not None else sync.live) and sync.phase in (Phase.TRAINING, Phase.STARTING)


def next_live_step(facts: Facts, sync: Sync) -> Step:
    """The next step for a job whose wrapper speaks, and has neither failed, finished nor declined."""
    action = facts.action
    if sync.generation >= action.generation and sync.phase is Phase.TRAINING:
        return _entered(facts, sync)
    if facts.told is None and isinstance(action, Grow):
        return _lend(facts, action, sync)
    if sync.generation >= action.generation:
        limit_s = facts.limits.start_timeout_s
        late = facts.overdue(STARTING, limit_s)
        return Finish(FAILED, f"the job did not train within {limit_s:g} s") if late else Wait(STARTING)
    limit_s = facts.limits.start_timeout_s if isinstance(action, Grow) else facts.limits.leave_timeout_s
    if facts.overdue(SWITCHING, limit_s):
        return Finish(FAILED, f"the job did not follow within {limit_s:g} s of its order")
    if facts.told is not None:
        return Wait(SWITCHING)  # it was told once and for all; what changes meanwhile, it finds by itself
    return PostOrder(SWITCHING, live_order(facts, _nodes_of(facts, sync)))


def live_order(facts: Facts, nodes: tuple[str, ...]) -> Order:
    """Go on with these nodes, without a stop."""
    action = facts.action
    return Order(
        generation=action.generation,
        kind=str(action.__struct_config__.tag),
        go=True,
        batch=action.batch,
        lr_scale=action.lr_scale,
        nodes=nodes,
        reason=action.reason,
        live=True,
        lenders=tuple(one.job_id for one in facts.companions if _lends(one, nodes)),
    )


def _lends(companion: JobRecord, nodes: tuple[str, ...]) -> bool:
    return companion.state is JobState.RUNNING and not set(companion.nodes).isdisjoint(nodes)


def _nodes_of(facts: Facts, sync: Sync) -> tuple[str, ...]:
    if isinstance(facts.action, Shrink):
        return facts.action.keep
    return tuple(dict.fromkeys([*sync.nodes, *facts.record.nodes]))


def _entered(facts: Facts, sync: Sync) -> Step:
    """The job trains in this generation or a later one: is it on the nodes that it was meant to be on?"""
    action = facts.action
    on = set(sync.nodes)
    if isinstance(action, Grow):
        lent = facts.companion
        if lent is not None and lent.state is JobState.RUNNING and set(lent.nodes) <= on:
            return Finish(DONE, "trains")
        return Finish(REFUSED, f"the job went on by itself with {len(on)} nodes")
    if isinstance(action, Shrink):
        if not on <= set(action.keep):
            return Finish(REFUSED, f"the job went on by itself with {len(on)} nodes")
        return _take_back(facts, action)
    return Finish(DONE, "trains")


def _take_back(facts: Facts, action: Shrink) -> Step:
    """No rank is left on any node that is not kept: the loans end first, then the job itself becomes smaller."""
    if facts.move.back is not None:
        return Finish(facts.move.back.status, facts.move.back.reason)
    keep, record = set(action.keep), facts.record
    for lender in (one for one in facts.companions if one.state is JobState.RUNNING):
        kept = tuple(name for name in lender.nodes if name in keep)
        if not kept:
            return GiveBack(lender.job_id)
        if len(kept) < len(lender.nodes):
            return ShrinkTo(kept, lender=lender.job_id)
    kept = tuple(name for name in record.nodes if name in keep)
    if len(kept) == len(record.nodes):
        return Finish(DONE, "trains")
    if record.batch_host and record.batch_host not in kept:
        return Finish(REFUSED, f"the batch host {record.batch_host} cannot be given back")
    return ShrinkTo(kept)


def _lend(facts: Facts, action: Grow, sync: Sync) -> Step:  # noqa: PLR0911  (a list of rules, read from the top)
    """Until the companion stands ready nothing happens to the job, and it hears of nothing."""
    lent, move, limits = facts.companion, facts.move, facts.limits
    if move.back is not None:
        if lent is not None and _alive(lent) and "give back" not in move.tried:
            return GiveBack(lent.job_id, stage=move.stage)
        return Finish(move.back.status, move.back.reason)
    within_s = limits.companion_timeout_s
    if lent is None:
        return _ask(facts, action, sync)
    if lent.state is JobState.PENDING:
        if lent.reason not in READY_REASONS and facts.overdue(LENDING, REASON_HOLDS_S):
            return TurnBack(LENDING, REFUSED, f"the companion {lent.job_id} waits for something else: {lent.reason}")
        if facts.overdue(LENDING, within_s):
            return TurnBack(LENDING, FAILED, f"the companion {lent.job_id} did not start within {within_s:g} s")
        return Wait(LENDING)
    if lent.state is not JobState.RUNNING:
        return Finish(FAILED, f"the companion {lent.job_id} has ended: {' '.join(lent.slurm_states)}")
    wanted = action.nodes - action.from_nodes
    if len(lent.nodes) != wanted or not set(lent.nodes).isdisjoint(facts.record.nodes):
        return TurnBack(JOINING, FAILED, f"the companion {lent.job_id} came up on {' '.join(lent.nodes)}")
    if not sync.live or lent.job_id not in {one.job_id for one in sync.companions}:
        if facts.overdue(JOINING, within_s):
            return TurnBack(JOINING, FAILED, f"the companion {lent.job_id} was not ready within {within_s:g} s")
        return Wait(JOINING)
    held = {name for one in (facts.record, *facts.companions) if _alive(one) for name in one.nodes}
    stays = tuple(name for name in sync.nodes if name in held and name not in lent.nodes)
    return PostOrder(SWITCHING, live_order(facts, (*stays, *lent.nodes)))


def _ask(facts: Facts, action: Grow, sync: Sync) -> Step:
    """There is no companion yet, or no longer."""
    within_s = facts.limits.companion_timeout_s
    if not sync.live or not sync.folder:
        return Finish(REFUSED, "the job cannot grow while it trains")
    if facts.answer is not None and facts.answer.refused:
        return Finish(REFUSED, f"Slurm refused the companion: {facts.answer.refused}")
    if "lend" not in facts.move.tried:
        return Lend(loan_for(facts.record, sync, action, facts.now_s))
    if facts.overdue(LENDING, within_s):
        return Finish(REFUSED, f"no companion came up within {within_s:g} s of the request")
    return Wait(LENDING)


def silent(facts: Facts) -> Step:
    """The job has not spoken since it started or since this daemon did: it is asked for nothing until it does."""
    limit_s = facts.limits.leave_timeout_s
    late = facts.overdue(LEAVING, limit_s)
    return Finish(FAILED, f"the job's wrapper said nothing for {limit_s:g} s") if late else Wait(LEAVING)


def _alive(record: JobRecord) -> bool:
    return record.state in (JobState.PENDING, JobState.RUNNING)
