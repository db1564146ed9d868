"""Checks every invariant on what passes through the two sockets, in tests and in the running daemon alike.

A view, plan or action that breaks one raises `InvariantError`; the loop then acts on nothing and tries the next tick.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ones_slurm.engine.holdings import check_holdings, check_rearranging, check_shares
from ones_slurm.engine.invariants import InvariantError as InvariantError  # noqa: PLC0414 -- known here
from ones_slurm.engine.invariants import check_batch, check_unique
from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.plan import Action, Grow, Outcome, Plan, Shrink, Target
from ones_slurm.model.sockets import Cluster, Event, Policy


class GuardedCluster:
    """A cluster that refuses to show an impossible view or to begin an impossible action."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._view: ClusterView | None = None

    def now(self) -> float:
        return self._cluster.now()

    def observe(self) -> ClusterView:
        """The cluster's view, checked against itself and against the one before."""
        view = self._cluster.observe()
        if self._view is not None and view.now_s < self._view.now_s:
            raise InvariantError("view", f"time runs backwards, from {self._view.now_s} to {view.now_s}")
        check_view(view)
        self._view = view
        return view

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        """Passes on actions, with at most one per job; whether each fits its job is `check_actions`'s to say."""
        check_unique("action", "two actions for job", (action.job_id for action in actions))
        outcomes = self._cluster.act(actions)
        asked = [(action.job_id, action.generation) for action in actions]
        if [(outcome.job_id, outcome.generation) for outcome in outcomes] != asked:
            raise InvariantError("action", "the outcomes are not those of the actions, in order")
        return outcomes

    def wait(self, until_s: float) -> list[Event]:
        return self._cluster.wait(until_s)


class GuardedPolicy:
    """A policy whose plan is checked, and whose own failure is one more broken invariant."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """The policy's plan. Raises `InvariantError` for an impossible one, and for any exception inside."""
        try:
            plan = self._policy.decide(view, rng)
        except Exception as error:
            raise InvariantError("plan", f"policy {self.name} failed: {type(error).__name__}: {error}") from error
        check_plan(view, plan)
        return plan


def check_view(view: ClusterView) -> None:
    """Ids are unique, and no node of an elastic job is held by another job as well."""
    check_unique("view", "two jobs with id", (job.job_id for job in view.jobs))
    check_unique("view", "two nodes named", (node.name for node in view.nodes))
    if view.can_reallocate:
        check_holdings(view)
        return
    holders = Counter(name for job in view.jobs for name in job.nodes)
    for job in view.jobs:
        shared = [name for name in job.nodes if holders[name] > 1]
        if job.elastic and shared:
            raise InvariantError("view", f"job {job.job_id} is elastic and shares node {shared[0]}")


def check_plan(view: ClusterView, plan: Plan) -> None:
    """Only elastic jobs, within their bounds, and not more nodes in all than there are or are being given back."""
    check_unique("plan", "two targets for job", (target.job_id for target in plan.targets))
    if view.can_reallocate:
        check_shares(view, plan)
        return
    jobs = {job.job_id: job for job in view.jobs}
    for target in plan.targets:
        if target.job_id not in jobs:
            raise InvariantError("plan", f"job {target.job_id} is not in the view")
        _check_target(jobs[target.job_id], target)
    planned = {target.job_id for target in plan.targets}
    others = {name for job in view.jobs if job.job_id not in planned for name in job.nodes}
    held = {name for job in view.jobs if job.job_id in planned for name in job.nodes}
    there = ({node.name for node in view.nodes if node.usable} | held) - others
    coming = sum(
        max(0, len(job.nodes) - job.move.nodes)
        for job in view.jobs
        if job.move is not None and job.job_id not in planned
    )
    total = sum(target.nodes for target in plan.targets)
    if total > len(there) + coming:
        raise InvariantError("plan", f"{total} nodes are planned, and there are {len(there)}, {coming} more to come")


def check_actions(view: ClusterView, actions: Sequence[Action]) -> None:
    """One action per job, a new generation, and a shrink to some of the job's own nodes with its batch host."""
    check_unique("action", "two actions for job", (action.job_id for action in actions))
    if view.can_reallocate:
        check_rearranging(view, actions)
        return
    jobs = {job.job_id: job for job in view.jobs}
    for action in actions:
        job = jobs.get(action.job_id)
        if job is None or not job.elastic or job.move is not None:
            raise InvariantError("action", f"job {action.job_id} is not there, not elastic or already on the move")
        if action.generation <= job.generation:
            raise InvariantError("action", f"job {job.job_id} is at generation {job.generation} already")
        if isinstance(action, Shrink):
            if not action.keep or not set(action.keep) < set(job.nodes):
                raise InvariantError("action", f"job {job.job_id} cannot keep {', '.join(action.keep) or 'nothing'}")
            if job.batch_host and job.batch_host not in action.keep:
                raise InvariantError("action", f"job {job.job_id} would lose its batch host {job.batch_host}")
        if isinstance(action, Grow):
            if not job.can_grow:
                raise InvariantError("action", f"nothing can be lent to job {job.job_id}")
            if not action.from_nodes == len(job.nodes) < action.nodes:
                raise InvariantError("action", f"job {job.job_id} has {len(job.nodes)} nodes, not {action.from_nodes}")


def _check_target(job: JobView, target: Target) -> None:
    held = len(job.nodes)
    if not job.elastic or job.wish is None:
        raise InvariantError("plan", f"job {job.job_id} is rigid")
    bounds = job.wish.node_bounds(job.asked_nodes, job.gpus_per_node)
    stays = target.nodes == held or (target.nodes == 0 and job.state is JobState.PENDING)
    if not stays and target.nodes not in bounds:
        steps = f" in steps of {bounds.step}" if bounds.step > 1 else ""
        allowed = f"{bounds.low}-{bounds.high} nodes{steps}"
        raise InvariantError("plan", f"job {job.job_id} allows {allowed}, not {target.nodes}")
    check_batch(job, target)
