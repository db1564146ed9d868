"""From a plan to a few actions: *wanted* (the plan), *requested* (moves under way) and *observed* (the view).

A pure function with an explicit memory. It is reluctant on purpose: a growth that costs a restart must be wanted
several plans in a row and have its nodes free; a shrink goes at once, but only when somebody needs the nodes. Where
nodes can be lent to a job that trains on, nothing is lost by growing at once.
"""

from collections.abc import Collection
from typing import Any

from ones_slurm.engine.claims import Claims
from ones_slurm.engine.keep import choose_keep
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.rearrange import rearrange
from ones_slurm.model.adoption import Rung
from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.plan import Action, Grow, Plan, Rebatch, Requeue, Shrink, Start, Target
from ones_slurm.model.settings import Engine as EngineSettings

# Another batch alone is worth a stop of the training only when it differs by a tenth (ours: a stop costs seconds,
# and a smaller change of the batch changes the gradient noise less than chance does).
REBATCH_MARGIN = 0.1


def reconcile(
    view: ClusterView, plan: Plan, requested: Collection[str], memory: Memory, settings: EngineSettings
) -> tuple[tuple[Decision, ...], Memory]:
    """One decision per job that has a wish or a target, in the view's order, and the memory for the next tick.

    `requested` are the jobs with an action that was sent and has not ended.
    """
    if view.can_reallocate:
        return rearrange(view, plan), memory
    return _Tick(view, plan, requested, memory, settings).decide()


class _Tick:
    """The working state of one call."""

    def __init__(
        self, view: ClusterView, plan: Plan, requested: Collection[str], memory: Memory, settings: EngineSettings
    ) -> None:
        self.view, self.requested, self.settings = view, requested, settings
        self.targets = {target.job_id: target for target in plan.targets}
        self.advice = {target.job_id: target for target in plan.advice}
        self.usable = {node.name for node in view.nodes if node.usable}
        self.moved_s = self._last_moves(memory)
        self.sized = {job.job_id: memory.sized[job.job_id] for job in view.jobs if _keeps_size(job, memory)}
        growers = [job for job in view.jobs if self._wants_more(job)]
        self.growing = {job.job_id: memory.growing.get(job.job_id, 0) + 1 for job in growers}
        patient = [job for job in growers if self._patient(job) and not self._obstacle(job) and self._may_grow(job)]
        self.claims = Claims(view, self.targets, patient)
        self.moves_left = settings.max_moves_per_tick
        self.decisions: dict[str, Decision] = {}

    def decide(self) -> tuple[tuple[Decision, ...], Memory]:
        """Starts before shrinks before growths before batches: the cheap and the needed are never crowded out."""
        movable: list[tuple[JobView, Target]] = []
        for job in self.view.jobs:
            target = self.targets.get(job.job_id)
            obstacle = self._obstacle(job)
            if target is not None and not obstacle:
                movable.append((job, target))
            elif target is not None or job.wish is not None or job.why_rigid:
                advice = self.advice.get(job.job_id) if job.rung is Rung.ADVISE else None
                self._leave(job, obstacle or "the policy has no opinion on it", target or advice)
        for consider in (self._start, self._shrink, self._grow, self._rebatch):
            for job, target in movable:
                if job.job_id not in self.decisions:
                    consider(job, target)
        for job, target in movable:
            if job.job_id not in self.decisions:
                self._leave(job, f"stays: {target.reason}", target)
        ordered = tuple(self.decisions[job.job_id] for job in self.view.jobs if job.job_id in self.decisions)
        return ordered, Memory(growing=self.growing, moved_s=self.moved_s, sized=self.sized)

    def _start(self, job: JobView, target: Target) -> None:
        if job.state is not JobState.PENDING:
            return
        size = (target.nodes, target.batch)
        told = self.sized.get(job.job_id) == size
        if target.nodes == 0:
            self._leave(job, target.reason, target)
        elif job.asked_nodes == target.nodes and (told or target.batch in (0, job.batch)):
            self._leave(job, f"waits for {target.nodes} nodes: {target.reason}", target)
        elif told and self._moved_lately(job):
            self._leave(job, "was just told its size, and has not taken it yet", target)
        else:
            start = Start(
                job_id=job.job_id, generation=job.generation + 1, nodes=target.nodes, **_training(job, target)
            )
            if self._act(job, target, start):
                self.sized[job.job_id] = size

    def _shrink(self, job: JobView, target: Target) -> None:
        if job.idle and target.nodes >= len(job.nodes) - len(job.idle) > 0:
            self._use_idle(job, target)
        if not 0 < target.nodes < len(job.nodes) or job.job_id in self.decisions:
            return
        keep = choose_keep(job, target.nodes, target.keep, self.usable - set(job.idle))
        way: Action
        if self.view.can_shrink:
            way = Shrink(job_id=job.job_id, generation=job.generation + 1, keep=keep, **_training(job, target))
        elif self._may_requeue(job):
            way = self._requeue(job, target)
        else:
            self._leave(job, "could be smaller, but neither a shrink nor a requeue is allowed here", target)
            return
        if self.moves_left and not self.view.draining and not self.claims.give_up(set(job.nodes) - set(keep)):
            self._leave(job, "could be smaller, but nobody needs the nodes yet", target)
        else:
            self._act(job, target, way)

    def _use_idle(self, job: JobView, target: Target) -> None:
        """Nodes on which ranks died: sound ones of its own are entered anew, without a stop; others are given back."""
        lent = {name for loan in job.lent for name in loan.nodes}
        lost = {name for name in job.idle if name in lent or name not in self.usable} - {job.batch_host}
        if lost and self.view.can_shrink:
            keep = tuple(name for name in job.nodes if name not in lost)
            shrink = Shrink(job_id=job.job_id, generation=job.generation + 1, keep=keep, **_training(job, target))
            self._act(job, target, shrink)
        elif not lost and target.nodes >= len(job.nodes):
            again = Rebatch(job_id=job.job_id, generation=job.generation + 1, **_training(job, target))
            self._act(job, target, again)

    def _grow(self, job: JobView, target: Target) -> None:
        if job.state is not JobState.RUNNING or target.nodes <= len(job.nodes):
            return
        if not self._may_grow(job):
            self._leave(job, "could be larger, but a requeue is not allowed here or for this job", target)
        elif not self._patient(job):
            self._leave(job, "could be larger; a restart is worth it only if that stays so", target)
        elif not self.claims.granted(job):
            self._leave(job, "could be larger, but the nodes are not free yet", target)
        else:
            self._act(job, target, self._larger(job, target))

    def _rebatch(self, job: JobView, target: Target) -> None:
        if job.state is not JobState.RUNNING or target.nodes != len(job.nodes) or not target.batch or not job.batch:
            return
        if abs(target.batch - job.batch) >= REBATCH_MARGIN * job.batch:
            batch = Rebatch(job_id=job.job_id, generation=job.generation + 1, **_training(job, target))
            self._act(job, target, batch)

    def _act(self, job: JobView, target: Target, action: Action) -> bool:
        if not self.moves_left:
            self._leave(job, "is to move, but enough others move in this tick", target)
            return False
        self.moves_left -= 1
        self.moved_s[job.job_id] = self.view.now_s
        self.growing.pop(job.job_id, None)
        self.decisions[job.job_id] = Decision(
            job_id=job.job_id, reason=target.reason, action=action, numbers=self._numbers(job, target)
        )
        return True

    def _leave(self, job: JobView, reason: str, target: Target | None) -> None:
        self.decisions[job.job_id] = Decision(job_id=job.job_id, reason=reason, numbers=self._numbers(job, target))

    def _numbers(self, job: JobView, target: Target | None) -> dict[str, float]:
        wanted = {"wanted_nodes": float(target.nodes)} if target is not None else {}
        patience = {"plans_wanting_more": float(self.growing[job.job_id])} if job.job_id in self.growing else {}
        return {
            **(target.numbers if target is not None else {}),
            "has_nodes": float(len(job.nodes)),
            **wanted,
            **patience,
        }

    def _obstacle(self, job: JobView) -> str:
        """Why the job cannot be moved at all now; empty if it can."""
        pending, running = job.state is JobState.PENDING, job.state is JobState.RUNNING
        move = job.move
        obstacles = (
            (move, move and f"a {move.kind} to {move.nodes} nodes is under way ({move.stage})"),
            (job.job_id in self.requested, "a move is under way"),
            (not job.elastic, job.why_rigid or "is not elastic now"),
            (not pending and not running, f"is {job.state}"),
            (job.rung is not Rung.ACT, _advised(job, self.advice.get(job.job_id))),
            (pending and job.held, "is held, or waits for something else than nodes"),
            (running and self._moved_lately(job), f"was moved less than {self.settings.min_move_gap_s:g} s ago"),
        )
        return next((reason for there, reason in obstacles if there and reason), "")

    def _last_moves(self, memory: Memory) -> dict[str, float]:
        moved_s = {}
        for job in self.view.jobs:
            if job.move is not None or job.job_id in self.requested:
                moved_s[job.job_id] = self.view.now_s
            elif job.job_id in memory.moved_s:
                moved_s[job.job_id] = memory.moved_s[job.job_id]
        return moved_s

    def _moved_lately(self, job: JobView) -> bool:
        moved_s = self.moved_s.get(job.job_id)
        return moved_s is not None and self.view.now_s - moved_s < self.settings.min_move_gap_s

    def _wants_more(self, job: JobView) -> bool:
        target = self.targets.get(job.job_id)
        running = job.state is JobState.RUNNING and job.move is None
        return running and target is not None and target.nodes > len(job.nodes)

    def _patient(self, job: JobView) -> bool:
        return job.can_grow or self.growing.get(job.job_id, 0) >= self.settings.grow_patience_ticks

    def _may_grow(self, job: JobView) -> bool:
        return job.can_grow or self._may_requeue(job)

    def _may_requeue(self, job: JobView) -> bool:
        return self.view.can_requeue and job.requeueable

    def _requeue(self, job: JobView, target: Target) -> Requeue:
        return Requeue(**_change(job, target))

    def _larger(self, job: JobView, target: Target) -> Grow | Requeue:
        return Grow(**_change(job, target)) if job.can_grow else self._requeue(job, target)


def _advised(job: JobView, advice: Target | None) -> str:
    """What is said of a job that may not be moved now; what a job is only observed for is not for its user."""
    if job.rung is not Rung.ADVISE or advice is None:
        return f"is at {job.rung} ({job.why_rung})"
    size = f"{advice.nodes} nodes" + (f", batch {advice.batch}" if advice.batch else "")
    return f"advice: {size}: {advice.reason}; is at advise ({job.why_rung})"


def _keeps_size(job: JobView, memory: Memory) -> bool:
    return job.state is JobState.PENDING and job.job_id in memory.sized


def _change(job: JobView, target: Target) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "generation": job.generation + 1,
        "nodes": target.nodes,
        "from_nodes": len(job.nodes),
        **_training(job, target),
    }


def _training(job: JobView, target: Target) -> dict[str, Any]:
    """How it shall train there; a plan without a batch leaves the batch as it is."""
    return {"batch": target.batch or job.batch, "lr_scale": target.lr_scale, "reason": target.reason}
