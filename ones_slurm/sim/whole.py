"""An imagined Slurm: jobs start by themselves, hold whole nodes, and change size in the ways of the live cluster."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ones_slurm.model.cluster import ClusterView, JobState, Move, NodeView
from ones_slurm.model.plan import Action, Outcome, Reallocate, Requeue, Shrink, Start, Status
from ones_slurm.model.pools import fits, kind_of
from ones_slurm.model.settings import Costs
from ones_slurm.model.settings import Moves as Allowed
from ones_slurm.sim.cluster import Due, ImaginedCluster
from ones_slurm.sim.faults import Outage
from ones_slurm.sim.job import Job, Submission
from ones_slurm.sim.queue import startable


class WholeNodeCluster(ImaginedCluster):
    """Starts pending jobs in order with backfill; an action changes the size of one that waits or trains.

    Start: the job asks for another size from now on. Shrink: `save_s`, the nodes go, `rescale_s`. Requeue: `save_s`,
    all nodes go, `requeue_delay_s`, the queue, `start_s`; back to the old size when it does not start in time.
    Rebatch: `rebatch_s`.
    """

    whole_nodes = True

    def __init__(
        self,
        nodes: Sequence[NodeView],
        work: Iterable[Submission],
        costs: Costs,
        *,
        allowed: Allowed | None = None,
        every_s: float = 0.0,
        outages: Sequence[Outage] = (),
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        self.allowed = allowed or Allowed()
        self._stale = False
        self._per_node: dict[str, int] = {}
        super().__init__(nodes, work, costs, every_s=every_s, outages=outages, speeds=speeds)

    def observe(self) -> ClusterView:
        view = super().observe()
        return ClusterView(
            now_s=view.now_s,
            nodes=view.nodes,
            jobs=view.jobs,
            can_shrink=self.allowed.shrink,
            can_requeue=self.allowed.requeue,
            past=view.past,
            pause_s=self.costs.start_s + self.costs.save_s + self.costs.requeue_delay_s,
        )

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        outcomes = [self._take_up(action) for action in actions]
        self.freed()
        return outcomes

    def admit(self, what: Submission) -> Job:
        most = self._largest(what.partition)
        nodes = what.nodes or -(-what.gpus // most)
        per_node = -(-what.gpus // nodes)
        sizes = what.wish.gpus if what.wish is not None else None
        if sizes is not None and what.wish is not None and what.wish.nodes is None:
            if sizes.low < sizes.high >= most:
                per_node = most
            else:
                what = msgspec.structs.replace(what, wish=None, why_rigid="has one size, or would share a node")
        return Job(
            what,
            what.begin(),
            asked_nodes=nodes,
            gpus_per_node=per_node,
            asked_gpus=what.gpus,
            batch=what.batch,
            exclusive=what.wish is not None,
        )

    def freed(self) -> None:
        """The queue is looked at once for all that happens at one moment."""
        if not self._stale:
            self._stale = True
            self._clock.at(self.now(), Due.QUEUE, (Due.QUEUE, None, None, self._run_queue))

    def put_back(self, job: Job) -> None:
        if job.move is not None:
            self.answer(job, Status.FAILED, "a node of the job was lost")
        self.release(job)
        job.state, job.move = JobState.PENDING, None
        self._wait_until(job, self.now() + self.costs.requeue_delay_s)

    def _largest(self, partition: str) -> int:
        """GPUs of the largest node of a partition."""
        if partition not in self._per_node:
            there = (node.gpus for node in self.nodes.values() if fits(partition, 0, kind_of(node)))
            self._per_node[partition] = max(there, default=1)
        return self._per_node[partition]

    def _take_up(self, action: Action) -> Outcome:
        job = self.live.get(action.job_id)
        if job is not None and job.generation == action.generation:
            return Outcome(action.job_id, action.generation, Status.ACCEPTED)
        refusal = self._obstacle(job, action)
        if refusal or job is None:
            return Outcome(action.job_id, action.generation, Status.REFUSED, refusal)
        job.generation, job.seen = action.generation, None
        if isinstance(action, Start):
            job.asked_nodes, job.batch = action.nodes, action.batch
            return Outcome(action.job_id, action.generation, Status.DONE, f"asks for {action.nodes} nodes")
        kind = str(action.__struct_config__.tag)
        nodes = action.nodes if isinstance(action, Requeue) else len(job.allocation)
        nodes = len(action.keep) if isinstance(action, Shrink) else nodes
        job.move = Move(action.generation, kind, "leaving", self.now(), nodes)
        job.moves += 1
        self.stop_training(job)
        job.saved = job.truth.saved()
        pause_s = self.costs.rebatch_s if kind == "rebatch" else self.costs.save_s
        self.later(pause_s, job, lambda job: self._left(job, action))
        return Outcome(action.job_id, action.generation, Status.ACCEPTED)

    def _obstacle(self, job: Job | None, action: Action) -> str:
        if job is None:
            return "the job is over"
        start = isinstance(action, Start)
        held = {name for name, _ in job.allocation}
        obstacles = (
            (action.generation < job.generation or job.move is not None, "another move of this job is under way"),
            (isinstance(action, Reallocate), "here whole nodes are given"),
            (start and job.state is not JobState.PENDING, "the job has started"),
            (not start and not job.training, "the job does not train"),
            (isinstance(action, Shrink) and not set(action.keep) < held, "these are not its nodes"),
            (isinstance(action, Requeue) and not job.what.requeueable, "the job may not be requeued"),
        )
        return next((reason for there, reason in obstacles if there), "")

    def _left(self, job: Job, action: Action) -> None:
        """Its state is saved and no rank runs: now its nodes can change."""
        if isinstance(action, Shrink):
            self._shrunk(job, action)
        elif isinstance(action, Requeue):
            self._requeued(job, action)
        else:
            job.close_span(self.now())
            job.batch = action.batch
            self._trains(job)

    def _shrunk(self, job: Job, action: Shrink) -> None:
        job.close_span(self.now())
        kept = tuple((name, gpus) for name, gpus in job.allocation if name in action.keep)
        self.release(job)
        self.take(job, kept)
        job.batch, job.asked_nodes = action.batch, len(kept)
        self.later(self.costs.rescale_s, job, self._trains)
        self.freed()

    def _requeued(self, job: Job, action: Requeue) -> None:
        job.close_span(self.now())
        self.release(job)
        job.state, job.batch, job.asked_nodes = JobState.PENDING, action.batch, action.nodes
        job.restarts += 1
        self._wait_until(job, self.now() + self.costs.requeue_delay_s)
        if action.from_nodes:
            self.later(
                self.costs.requeue_delay_s + self.allowed.start_timeout_s, job, lambda job: self._turn_back(job, action)
            )

    def _wait_until(self, job: Job, eligible_s: float) -> None:
        job.eligible_s = eligible_s
        self._clock.at(eligible_s, Due.QUEUE, (Due.QUEUE, None, None, self._run_queue))
        self.freed()

    def _turn_back(self, job: Job, action: Requeue) -> None:
        job.asked_nodes, job.seen = action.from_nodes, None
        self.answer(job, Status.FAILED, f"did not start with {action.nodes} nodes in time")
        job.move = None
        self.freed()

    def _trains(self, job: Job) -> None:
        moved = job.move is not None
        job.move = None
        self.start_training(job)
        if moved:
            self.answer(job, Status.DONE, "trains")

    def _run_queue(self, _: None) -> None:
        self._stale = False
        now_s = self.now()
        waiting = [job for job in self.live.values() if job.state is JobState.PENDING and job.eligible_s <= now_s]
        if not waiting:
            return
        running = [job for job in self.live.values() if job.allocation]
        for job, allocation in startable(waiting, running, self.nodes, self.free, now_s):
            first = job.first_start_s is None
            self.take(job, allocation)
            self.tell(job, "started")
            self.later(0.0 if first and job.what.includes_start else self.costs.start_s, job, self._trains)
