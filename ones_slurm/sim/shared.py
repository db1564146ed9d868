"""An imagined cluster that gives any GPUs to any job, as the clusters of the scheduling literature do."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ones_slurm.model.cluster import JobState, NodeView
from ones_slurm.model.plan import Action, Outcome, Reallocate, Rebatch, Status
from ones_slurm.model.pools import fits, kind_of
from ones_slurm.model.settings import Costs
from ones_slurm.sim.cluster import ImaginedCluster
from ones_slurm.sim.faults import Outage
from ones_slurm.sim.job import Job, Submission


class SharedCluster(ImaginedCluster):
    """Nothing starts by itself: every job waits for a `Reallocate`. All actions of one call happen at once.

    After each change of its GPUs, its start included, a job makes no progress for `costs.start_s`, and for
    `costs.save_s` more when it had some before.

    `contention` is the share of its speed that a job on several nodes loses while another such job trains on one of
    them; the evaluation of Pollux (section 5.3) calls this interference, and tries up to a half.
    """

    def __init__(
        self,
        nodes: Sequence[NodeView],
        work: Iterable[Submission],
        costs: Costs,
        *,
        every_s: float = 0.0,
        outages: Sequence[Outage] = (),
        speeds: Mapping[str, float] | None = None,
        contention: float = 0.0,
    ) -> None:
        self._contention = contention
        super().__init__(nodes, work, costs, every_s=every_s, outages=outages, speeds=speeds)

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        refused = {id(action): reason for action in actions if (reason := self._obstacle(action))}
        moving = [action for action in actions if isinstance(action, Reallocate) and id(action) not in refused]
        short = self._short(moving)
        refused |= {id(action): f"node {short} has not so many GPUs" for action in moving if short}
        moving = [] if short else moving
        had = {action.job_id: bool(self.live[action.job_id].allocation) for action in moving}
        for move in moving:
            self._leave(self.live[move.job_id], move)
        for move in moving:
            self._enter(self.live[move.job_id], move, had_some=had[move.job_id])
        for action in actions:
            if isinstance(action, Rebatch) and id(action) not in refused:
                self._rebatch(self.live[action.job_id], action)
        return [
            Outcome(action.job_id, action.generation, Status.REFUSED, refused[id(action)])
            if id(action) in refused
            else Outcome(action.job_id, action.generation, Status.DONE)
            for action in actions
        ]

    def admit(self, what: Submission) -> Job:
        return Job(what, what.begin(), asked_nodes=what.gpus, gpus_per_node=1, asked_gpus=what.gpus, batch=what.batch)

    def start_training(self, job: Job) -> None:
        super().start_training(job)
        self._contend(job)

    def stop_training(self, job: Job) -> None:
        super().stop_training(job)
        self._contend(job)

    def put_back(self, job: Job) -> None:
        self.release(job)
        job.state = JobState.PENDING

    def _contend(self, cause: Job) -> None:
        """Finds anew who is in whose way, after one job began or ceased to train."""
        if not self._contention or len(cause.allocation) < 2:
            return
        wide = [job for job in self.live.values() if job.training and len(job.allocation) > 1]
        users = Counter(name for job in wide for name, _ in job.allocation)
        for job in wide:
            met = any(users[name] > 1 for name, _ in job.allocation)
            pace = self.speed_of(job) * (1.0 - self._contention if met else 1.0)
            if pace != job.pace:
                job.catch_up(self.now())
                job.pace = pace
                job.version += 1
                self._next_turn(job)

    def _obstacle(self, action: Action) -> str:
        job = self.live.get(action.job_id)
        if job is None:
            return "the job is over"
        if not isinstance(action, Reallocate | Rebatch):
            return "here jobs are given single GPUs"
        if action.generation <= job.generation:
            return "the job is further already"
        named = action.allocation if isinstance(action, Reallocate) and job.what.partition else ()
        outside = [name for name, _ in named if not fits(job.what.partition, 0, kind_of(self.nodes[name]))]
        return f"node {outside[0]} is not in partition {job.what.partition}" if outside else ""

    def _short(self, moving: Sequence[Reallocate]) -> str:
        """A node of which more would be given than it has; empty if there is none."""
        change: Counter[str] = Counter()
        for action in moving:
            for name, gpus in action.allocation:
                change[name] += gpus
            for name, gpus in self.live[action.job_id].allocation:
                change[name] -= gpus
        return next((name for name, gpus in change.items() if gpus > self.free[name]), "")

    def _leave(self, job: Job, action: Reallocate) -> None:
        self.stop_training(job)
        job.saved = job.truth.saved()
        job.close_span(self.now())
        if job.first_start_s is not None:
            job.moves += 1
            job.restarts += bool(action.allocation)
        self.release(job)
        job.generation, job.batch, job.state = action.generation, action.batch, JobState.PENDING

    def _enter(self, job: Job, action: Reallocate, *, had_some: bool) -> None:
        if not action.allocation:
            return
        first = job.first_start_s is None
        self.take(job, action.allocation)
        pause_s = 0.0 if first and job.what.includes_start else self.costs.start_s
        self.later(pause_s + (self.costs.save_s if had_some else 0.0), job, self.start_training)

    def _rebatch(self, job: Job, action: Rebatch) -> None:
        self.stop_training(job)
        job.close_span(self.now())
        job.generation, job.batch = action.generation, action.batch
        self.later(self.costs.rebatch_s, job, self.start_training)
