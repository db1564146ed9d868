"""The adoption ladder: the site's word on how far to go with each job, put into the view and kept by the plan.

`Ladder` wraps a cluster and says in each view which rung a job stands on at that moment, so that all that a plan
depends on is in the recorded view. `Laddered` wraps a policy: jobs below *act* are rigid for what is done, and a second
decision says what would be done with them.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ones_slurm.engine.journal import Journal
from ones_slurm.model.adoption import Adoption, Control, Rung
from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.errors import UsageError
from ones_slurm.model.plan import Action, Outcome, Plan, Start, Status, Target
from ones_slurm.model.sockets import Cluster, Event, Policy
from ones_slurm.model.wish import Bounds

HOUR_S = 3600.0


class Ladder:
    """Wraps a cluster. `control` is an administrator's standing word; it is asked at each look, and before each act."""

    def __init__(self, cluster: Cluster, adoption: Adoption, journal: Journal, control: Callable[[], Control]) -> None:
        self._cluster, self._adoption, self._control = cluster, adoption, control
        self._decided_under = control()
        self._open = {(action.job_id, action.generation) for action in journal.unfinished_actions()}
        since_s = cluster.now() - HOUR_S
        self._moved = {
            (move.job_id, move.generation): move.sent_s
            for move in journal.moves()
            if move.sent_s > since_s and move.kind != "start" and move.outcome != Status.OBSERVED
        }

    def now(self) -> float:
        return self._cluster.now()

    def observe(self) -> ClusterView:
        """The cluster's view with everybody's rung. Raises what a cluster does."""
        self._decided_under = self._control()
        view = self._cluster.observe()
        self._moved = {key: at_s for key, at_s in self._moved.items() if at_s > view.now_s - HOUR_S}
        stop, moves = self._why_nobody(view.now_s), Counter(job_id for job_id, _ in self._moved)
        draining = self._decided_under is Control.DRAIN
        jobs = tuple(self._placed(job, stop, moves[job.job_id], draining=draining) for job in view.jobs)
        return msgspec.structs.replace(view, jobs=jobs, draining=draining)

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        """Passes actions on. Those that were decided before an administrator said otherwise are refused, but not those
        that an earlier life of the daemon has begun."""
        stale = self._control() is not self._decided_under
        refused = {action.job_id for action in actions if stale and not self._is_open(action)}
        passed = [action for action in actions if action.job_id not in refused]
        outcomes = {outcome.job_id: outcome for outcome in (self._cluster.act(passed) if passed else ())}
        for action in passed:
            if not isinstance(action, Start):
                self._moved.setdefault((action.job_id, action.generation), self._cluster.now())
        why = "an administrator has told onesd otherwise in the meantime"
        return [
            outcomes.get(action.job_id) or Outcome(action.job_id, action.generation, Status.REFUSED, why)
            for action in actions
        ]

    def wait(self, until_s: float) -> list[Event]:
        return self._cluster.wait(until_s)

    def _is_open(self, action: Action) -> bool:
        return (action.job_id, action.generation) in self._open

    def _why_nobody(self, now_s: float) -> str:
        """Why nobody is at *act* now; empty where the site's words on each job hold."""
        if self._decided_under is not Control.RUN:
            return f"onesd is told to {self._decided_under}"
        window = self._adoption.quiet_window(now_s)
        return f"quiet hours here: {window}" if window else ""

    def _placed(self, job: JobView, stop: str, moved: int, *, draining: bool) -> JobView:
        """The job on its rung, with the lower end of its wish where the site wants it."""
        if draining and job.lent and job.elastic:
            return job
        rung, by = self._adoption.rung(job.partition, job.account, job.user)
        why = f"the site file has {by} at {rung}"
        if rung is Rung.OFF:
            return msgspec.structs.replace(job, rung=rung, why_rung=why, elastic=False, why_rigid=job.why_rigid or why)
        if rung is Rung.ACT:
            why = stop or self._why_often_enough(moved)
            rung = Rung.ADVISE if why else Rung.ACT
        return msgspec.structs.replace(self._not_below(job), rung=rung, why_rung=why)

    def _why_often_enough(self, moved: int) -> str:
        most = self._adoption.max_moves_per_job_hour
        return f"was moved {moved} times within an hour, and the site allows {most}" if moved >= most > 0 else ""

    def _not_below(self, job: JobView) -> JobView:
        least = min(self._adoption.never_below_nodes, job.asked_nodes)
        if not least or job.wish is None:
            return job
        try:
            return msgspec.structs.replace(job, wish=job.wish.at_least(least, job.asked_nodes, job.gpus_per_node))
        except UsageError:  # a wish that cannot be met is rigid as it is
            return job


class Laddered:
    """Wraps a policy. Where all jobs are at *act* it is the policy itself, to the last bit."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """The policy's plan for jobs at *act*, and as advice what it would do with the others if they were too."""
        below = {job.job_id for job in view.jobs if job.rung is not Rung.ACT}
        if view.draining:
            done = self._give_back(view, rng)
        else:
            done = self._policy.decide(_rigid(view, below) if below else view, rng)
        if not any(job.job_id in below and job.elastic for job in view.jobs):
            return done
        whole = self._policy.decide(view, rng)
        return Plan(done.targets, tuple(target for target in whole.targets if target.job_id in below))

    def _give_back(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """Each job that has nodes on loan goes on with its own ones, with the batch that the policy has for so many."""
        lent = {name for job in view.jobs for loan in job.lent for name in loan.nodes}
        own = {job.job_id: tuple(name for name in job.nodes if name not in lent) for job in view.jobs if _gives(job)}
        if not own or not view.can_shrink:
            return Plan()
        small = [_sized(job, len(own[job.job_id])) if job.job_id in own else job for job in view.jobs]
        others = {job.job_id for job in view.jobs} - own.keys()
        asked = self._policy.decide(_rigid(msgspec.structs.replace(view, jobs=tuple(small)), others), rng)
        batches = {t.job_id: (t.batch, t.lr_scale) for t in asked.targets if t.nodes == len(own.get(t.job_id, ()))}
        why = "gives back the nodes that are on loan, for onesd is being drained"
        return Plan(
            tuple(
                Target(job_id=job_id, nodes=len(keep), keep=keep, batch=batch, lr_scale=lr_scale, reason=why)
                for job_id, keep in own.items()
                for batch, lr_scale in [batches.get(job_id, (0, 1.0))]
            )
        )


def _rigid(view: ClusterView, job_ids: set[str]) -> ClusterView:
    jobs = (msgspec.structs.replace(job, elastic=False) if job.job_id in job_ids else job for job in view.jobs)
    return msgspec.structs.replace(view, jobs=tuple(jobs))


def _gives(job: JobView) -> bool:
    return bool(job.lent) and job.elastic and job.move is None and job.state is JobState.RUNNING


def _sized(job: JobView, nodes: int) -> JobView:
    if job.wish is None:
        return job
    return msgspec.structs.replace(job, wish=msgspec.structs.replace(job.wish, nodes=Bounds(nodes, nodes), gpus=None))
