"""From a plan with allocations to actions, where any job can be put on any GPUs.

There is nothing to wait for here: whoever must leave leaves in the same moment in which the others come, so a plan is
carried out whole. Reluctance is the policy's own affair, for only it knows what an allocation is worth.
"""

from ones_slurm.engine.memory import Decision
from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.plan import Action, Plan, Reallocate, Rebatch, Target

# As for whole nodes: a change of the batch alone stops the training, and below a tenth it changes little (ours).
REBATCH_MARGIN = 0.1


def rearrange(view: ClusterView, plan: Plan) -> tuple[Decision, ...]:
    """One decision per target, in the plan's order; those who give GPUs up come first."""
    jobs = {job.job_id: job for job in view.jobs}
    decisions = [_decide(jobs[target.job_id], target) for target in plan.targets if target.job_id in jobs]
    return tuple(sorted(decisions, key=lambda decision: _gain(jobs[decision.job_id], decision.action)))


def _decide(job: JobView, target: Target) -> Decision:
    return Decision(job_id=job.job_id, reason=target.reason, action=_action(job, target), numbers=target.numbers)


def _action(job: JobView, target: Target) -> Action | None:
    if job.state not in (JobState.PENDING, JobState.RUNNING):
        return None
    batch = target.batch or job.batch
    if target.allocation is not None and target.allocation != job.allocation:
        return Reallocate(
            job_id=job.job_id,
            generation=job.generation + 1,
            allocation=target.allocation,
            batch=batch,
            lr_scale=target.lr_scale,
            reason=target.reason,
        )
    if job.allocation and abs(batch - job.batch) > REBATCH_MARGIN * job.batch:
        return Rebatch(
            job_id=job.job_id,
            generation=job.generation + 1,
            batch=batch,
            lr_scale=target.lr_scale,
            reason=target.reason,
        )
    return None


def _gain(job: JobView, action: Action | None) -> int:
    return sum(gpus for _, gpus in action.allocation) - job.gpus if isinstance(action, Reallocate) else 0
