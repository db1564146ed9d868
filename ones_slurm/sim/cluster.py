"""What both kinds of imagined cluster share: virtual time, jobs that come, train and end, and nodes that break."""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ones_slurm.model.cluster import Allocation, ClusterView, JobState, NodeView, Past, Speed
from ones_slurm.model.errors import UsageError
from ones_slurm.model.plan import Action, Outcome, Status
from ones_slurm.model.pools import fits, kind_of
from ones_slurm.model.settings import Costs
from ones_slurm.model.sockets import Changed, Event
from ones_slurm.sim.clock import Clock
from ones_slurm.sim.faults import Outage
from ones_slurm.sim.job import Job, Submission

# Ended jobs that a view tells of (ours: more than the recipes that are in use at a time).
PAST_KEPT = 200


class Due(enum.IntEnum):
    """What the clock may hold. At one moment ends come first, then nodes, moves and arrivals, and then the queue."""

    TURN = 0
    NODE = 1
    STAGE = 2
    ARRIVAL = 3
    QUEUE = 4


class ImaginedCluster:
    """The `Cluster` socket over virtual time. Subclasses say how a job gets, changes and loses its GPUs.

    `wait` jumps from event to event and comes back at the first one that is worth a decision; with `every_s` only at
    multiples of that, as a scheduler does that looks at the queue by the clock. Nothing here depends on chance.
    `speeds` are those of the GPU types that are slower or faster than what jobs were measured on.
    """

    whole_nodes = False

    def __init__(
        self,
        nodes: Sequence[NodeView],
        work: Iterable[Submission],
        costs: Costs,
        *,
        every_s: float = 0.0,
        outages: Sequence[Outage] = (),
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        self._clock = Clock()
        self._speeds = speeds or {}
        self._every_s = every_s
        self.costs = costs
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self._seen_nodes = tuple(self.nodes.values())
        self.free = {name: node.gpus if node.usable else 0 for name, node in self.nodes.items()}
        self.live: dict[str, Job] = {}
        self.ended: list[Job] = []
        self._past: tuple[Past, ...] = ()
        self._events: list[Event] = []
        self._load(work)
        for outage in outages:
            self._clock.at(outage.from_s, Due.NODE, (Due.NODE, outage.node, False))
            self._clock.at(outage.until_s, Due.NODE, (Due.NODE, outage.node, True))

    def now(self) -> float:
        return self._clock.now_s

    def observe(self) -> ClusterView:
        now_s, whole = self.now(), self.whole_nodes
        return ClusterView(
            now_s=now_s,
            nodes=self._seen_nodes,
            jobs=tuple([job.view(now_s, whole_nodes=whole) for job in self.live.values()]),
            can_reallocate=not whole,
            pause_s=self.costs.start_s + self.costs.save_s,
            past=self._past,
        )

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        raise NotImplementedError

    def wait(self, until_s: float) -> list[Event]:
        """Lets time pass until then, or until something worth a decision happened."""
        until_s = max(until_s, self.now())
        while self._clock.next_s() <= until_s:
            self._happen(self._clock.pop())
            if self._events:
                until_s = min(until_s, self._look_s())
        if until_s < math.inf:
            self._clock.go_to(until_s)
        events, self._events = self._events, []
        return events

    @property
    def unfinished(self) -> int:
        """Jobs that are not over, those included that have yet to be submitted."""
        return len(self.live) + self._to_come

    def can_go_on(self) -> bool:
        """Whether anything will ever happen without a further action."""
        return self._clock.next_s() < math.inf

    def remaining_s(self, job_id: str, gpus: int) -> float:
        """The oracle: how long a job still needs on so many GPUs. For peers that are defined with one."""
        job = self.live[job_id]
        job.catch_up(self.now())
        return job.truth.remaining_s(gpus)

    def _load(self, work: Iterable[Submission]) -> None:
        self._to_come = 0
        names: set[str] = set()
        room: dict[str, int] = {}
        for what in sorted(work, key=lambda what: (what.submit_s, what.job_id)):
            least = what.wish.gpus.low if what.wish is not None and what.wish.gpus is not None else what.gpus
            if what.job_id in names:
                raise UsageError(f"two jobs are called {what.job_id}")
            if what.partition not in room:
                room[what.partition] = gpus_for(what.partition, self.nodes.values())
            if least > room[what.partition]:
                raise UsageError(
                    f"job {what.job_id} needs {least} GPUs, and {where(what.partition)} has {room[what.partition]}",
                    hint="give more nodes, or leave such jobs out",
                )
            names.add(what.job_id)
            self._clock.at(what.submit_s, Due.ARRIVAL, (Due.ARRIVAL, what))
            self._to_come += 1

    def _look_s(self) -> float:
        if not self._every_s:
            return self.now()
        return max(math.ceil(self.now() / self._every_s - 1e-9) * self._every_s, self.now())

    def _happen(self, due: tuple) -> None:  # type: ignore[type-arg]
        kind = due[0]
        if kind is Due.ARRIVAL:
            self._to_come -= 1
            job = self.admit(due[1])
            job.saved = job.truth.saved()
            job.talks = job.truth.report() is not None
            self.live[job.job_id] = job
            self.tell(job, "arrived")
            self.freed()
        elif kind is Due.NODE:
            self._set_node(due[1], usable=due[2])
        elif kind is Due.QUEUE:
            due[3](None)
        elif due[2] == due[1].version:
            if kind is Due.TURN:
                self._turn(due[1])
            else:
                due[3](due[1])

    def _turn(self, job: Job) -> None:
        job.catch_up(self.now())
        over = job.truth.turn()
        if job.talks:
            job.note_report()
        if over:
            self._end(job, JobState.DONE)
        else:
            job.saved = job.truth.saved()
            self._next_turn(job)

    def _end(self, job: Job, state: JobState) -> None:
        self.stop_training(job)
        job.close_span(self.now())
        self.release(job)
        job.state, job.end_s = state, self.now()
        job.seen = None
        del self.live[job.job_id]
        self.ended.append(job)
        if job.talks:
            self._past = (*self._past[-PAST_KEPT + 1 :], job.past())
        self.tell(job, "ended")
        self.freed()

    def _set_node(self, name: str, *, usable: bool) -> None:
        node = self.nodes[name]
        self.nodes[name] = msgspec.structs.replace(node, usable=usable)
        self._seen_nodes = tuple(self.nodes.values())
        if not usable:
            self.free[name] = 0
            for job in [job for job in self.live.values() if any(name == held for held, _ in job.allocation)]:
                self.stop_training(job)
                job.close_span(self.now())
                done = job.truth.work
                job.truth.restore(job.saved)
                job.lost_work += done - job.truth.work
                job.restarts += 1
                if job.what.requeueable:
                    self.put_back(job)
                    self.tell(job, f"lost node {name}")
                else:
                    self._end(job, JobState.FAILED)
        else:
            held = sum(gpus for job in self.live.values() for where, gpus in job.allocation if where == name)
            self.free[name] = node.gpus - held
        self._events.append(Changed("", f"node {name} {'is back' if usable else 'is down'}"))
        self.freed()

    # What subclasses build on.

    def admit(self, what: Submission) -> Job:
        """The job as it enters the queue."""
        raise NotImplementedError

    def freed(self) -> None:
        """GPUs have become free, or somebody new wants some."""

    def put_back(self, job: Job) -> None:
        """A job lost its GPUs and waits again; its truth is back at its last checkpoint."""
        raise NotImplementedError

    def tell(self, job: Job, what: str) -> None:
        """Something that is worth a decision."""
        self._events.append(Changed(job.job_id, what))

    def answer(self, job: Job, status: Status, reason: str = "") -> None:
        """The end of a move."""
        self._events.append(Outcome(job.job_id, job.generation, status, reason))

    def later(self, seconds: float, job: Job, stage: object) -> None:
        """Calls `stage(job)` then, unless the job's state has changed meanwhile."""
        self._clock.at(self.now() + seconds, Due.STAGE, (Due.STAGE, job, job.version, stage))

    def take(self, job: Job, allocation: Allocation) -> None:
        """Gives free GPUs to a job that has none."""
        for name, gpus in allocation:
            assert self.free[name] >= gpus, f"{job.job_id}: {gpus} GPUs of {name}, {self.free[name]} are free"
            self.free[name] -= gpus
        job.allocation, job.state, job.start_s = allocation, JobState.RUNNING, self.now()
        if job.first_start_s is None:
            job.first_start_s = self.now()
        job.version += 1
        job.seen = None

    def release(self, job: Job) -> None:
        """Takes all GPUs away."""
        for name, gpus in job.allocation:
            if self.nodes[name].usable:
                self.free[name] += gpus
        job.allocation = ()
        job.version += 1
        job.seen = None

    def stop_training(self, job: Job) -> None:
        """Counts what was done; from now on nothing more is."""
        job.catch_up(self.now())
        if job.training:
            job.training = False
            job.truth.begin((), 0)
        job.version += 1
        job.seen = None

    def start_training(self, job: Job) -> None:
        """From now on the job makes progress with its GPUs and batch."""
        job.pace = self.speed_of(job)
        job.seen_s = self.now()
        job.truth.begin(job.shape(), job.batch)
        job.training = True
        job.batch = job.truth.batch()
        job.version += 1
        job.seen = None
        self._measure(job)
        self._next_turn(job)

    def speed_of(self, job: Job) -> float:
        """Of its GPUs, against those that its truth was made for: all wait for the slowest."""
        if not self._speeds:
            return 1.0
        return min((self._speeds.get(self.nodes[name].gpu_type, 1.0) for name, _ in job.allocation), default=1.0)

    def _measure(self, job: Job) -> None:
        truth = job.truth.measured() if job.talks else None
        if truth is None:
            return
        types = {self.nodes[name].gpu_type for name, _ in job.allocation}
        speed = msgspec.structs.replace(
            truth,
            step_s=truth.step_s / job.pace,
            sync_s=truth.sync_s / job.pace,
            gpu_type=types.pop() if len(types) == 1 else "",
        )
        others = tuple(known for known in job.speeds if not _same_shape(speed, known))
        if len(others) < len(job.speeds) and not self._speeds:
            return
        if not job.speeds:
            self.tell(job, "measured")
        # On GPUs of another type the same shape has another speed, and the latest counts.
        job.speeds = (*others, speed)

    def _next_turn(self, job: Job) -> None:
        self._clock.at(
            self.now() + max(job.truth.until_turn_s(), 0.0) / job.pace, Due.TURN, (Due.TURN, job, job.version)
        )


def gpus_for(partition: str, nodes: Iterable[NodeView]) -> int:
    """All GPUs that a job of that partition could ever have."""
    return sum(node.gpus for node in nodes if fits(partition, 0, kind_of(node)))


def where(partition: str) -> str:
    """What to call that place in a message."""
    return f"partition {partition}" if partition else "the cluster"


def _same_shape(one: Speed, other: Speed) -> bool:
    return (one.nodes, one.gpus, one.local_batch) == (other.nodes, other.gpus, other.local_batch)
