"""A job in the imagined cluster: what was submitted, how it stands, and what is remembered of it afterwards."""

import dataclasses
from collections.abc import Callable

import msgspec

from ones_slurm.model.cluster import Allocation, JobState, JobView, Move, Past, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Wish
from ones_slurm.sim.truth import Truth

# Reports of an ended job that are kept for later ones (ours; a curve needs no more points).
MOST_REPORTS = 16


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload says of a job. `begin` makes its truth anew for each run.

    `gpus` is the size it asks for; on a cluster of whole nodes it takes `nodes`, or as many as
    hold that. `includes_start`
    says that its running time already contains a first start-up, as a trace's does.
    """

    job_id: str
    submit_s: float
    gpus: int
    begin: Callable[[], Truth]
    nodes: int = 0
    kind: str = ""
    wish: Wish | None = None
    batch: int = 0
    time_limit_s: float | None = None
    requeueable: bool = True
    user: str = "user"
    account: str = ""
    partition: str = ""
    includes_start: bool = False
    why_rigid: str = ""


class Span(msgspec.Struct, frozen=True):
    """A time in which a job held the same GPUs with the same batch."""

    from_s: float
    until_s: float
    gpus: int
    batch: int
    allocation: Allocation


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """One job from its submission to its end. `version` outdates whatever the clock holds for an earlier state."""

    what: Submission
    truth: Truth
    asked_nodes: int
    gpus_per_node: int
    asked_gpus: int
    state: JobState = JobState.PENDING
    allocation: Allocation = ()
    batch: int = 0
    generation: int = 0
    version: int = 0
    training: bool = False
    talks: bool = False  # whether it reports progress
    exclusive: bool = False  # holds whole nodes, even those with more GPUs than it uses
    pace: float = 1.0  # of what its truth says, for its GPUs are slower or others are in its way
    seen_s: float = 0.0  # up to here its work is counted
    start_s: float | None = None
    first_start_s: float | None = None
    end_s: float | None = None
    eligible_s: float = 0.0
    served_gpu_s: float = 0.0
    lost_work: float = 0.0
    moves: int = 0
    restarts: int = 0
    move: Move | None = None
    saved: object = None
    speeds: tuple[Speed, ...] = ()
    reports: list[Progress] = dataclasses.field(default_factory=list)
    spans: list[Span] = dataclasses.field(default_factory=list)
    seen: JobView | None = None

    @property
    def job_id(self) -> str:
        return self.what.job_id

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.allocation)

    def shape(self) -> tuple[int, ...]:
        """The GPUs on each node that it uses."""
        if self.exclusive:
            return (self.gpus_per_node,) * len(self.allocation)
        return tuple(gpus for _, gpus in self.allocation)

    def catch_up(self, now_s: float) -> None:
        """Counts the work done until now."""
        if self.training:
            self.truth.advance((now_s - self.seen_s) * self.pace)
        self.seen_s = now_s

    def report(self) -> Progress | None:
        """What it says of itself, with the rate that it really has."""
        said = self.truth.report()
        if said is None or self.pace == 1.0:
            return said
        return msgspec.structs.replace(said, samples_per_s=said.samples_per_s * self.pace)

    def past(self) -> Past:
        """What later jobs of the kind may learn from this one."""
        reports = tuple(self.reports)
        samples = reports[-1].samples if reports and self.state is JobState.DONE else 0
        return Past(user=self.what.user, recipe=self.what.kind, speeds=self.speeds, reports=reports, samples=samples)

    def note_report(self) -> None:
        """Keeps a report; of a long life only every second, fourth … one, the first and the last included."""
        report = self.report()
        if report is not None:
            self.reports.append(report)
            if len(self.reports) > MOST_REPORTS:
                self.reports = self.reports[::2]

    def close_span(self, now_s: float) -> None:
        """Writes down that it held these GPUs until now."""
        if self.allocation and self.start_s is not None:
            self.served_gpu_s += self.gpus * (now_s - self.start_s)
            if now_s > self.start_s:
                self.spans.append(Span(self.start_s, now_s, self.gpus, self.batch, self.allocation))
            self.start_s = now_s

    def view(self, now_s: float, *, whole_nodes: bool) -> JobView:
        """How a policy sees it; what cannot have changed is not built again."""
        if self.seen is not None and not (self.training and self.talks):
            return self.seen
        progress = None
        if self.talks and self.first_start_s is not None:
            self.catch_up(now_s)
            progress = self.report()
        names = tuple(name for name, _ in self.allocation)
        # Slurm has started it, and nobody in it answers yet
        starting = bool(self.allocation) and not self.training and self.move is None
        self.seen = JobView(
            job_id=self.what.job_id,
            user=self.what.user,
            account=self.what.account,
            partition=self.what.partition,
            name=self.what.kind,
            state=self.state,
            asked_nodes=self.asked_nodes,
            gpus_per_node=self.gpus_per_node,
            nodes=names,
            batch_host=names[0] if names and whole_nodes else "",
            wish=self.what.wish,
            elastic=self.what.wish is not None and not (whole_nodes and starting),
            why_rigid=self.what.why_rigid,
            requeueable=self.what.requeueable,
            held=self.eligible_s > now_s,
            submit_s=self.what.submit_s,
            start_s=self.start_s if self.allocation else None,
            time_limit_s=self.what.time_limit_s,
            restarts=self.restarts,
            generation=self.generation,
            batch=self.batch,
            progress=progress,
            move=self.move,
            asked_gpus=0 if whole_nodes else self.asked_gpus,
            allocation=() if whole_nodes else self.allocation,
            served_gpu_s=self.served_gpu_s,
            speeds=self.speeds,
            recipe=self.what.kind,
        )
        return self.seen
