"""What the page draws: who held what and who waited, in one form for what happened and for what is imagined.

Real segments and simulated runs both become a `Timeline`, so every picture and figure of the page is computed once and
compares like with like.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from ones_slurm.report.segments import WAITING, JobHistory, Segment


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """That a job held these GPUs (node, GPUs) from then until then, Unix seconds. `batch` is None where unknown."""

    from_s: float
    until_s: float
    gpus: tuple[tuple[str, int], ...]
    batch: int | None = None

    @property
    def total_gpus(self) -> int:
        """All of them."""
        return sum(gpus for _, gpus in self.gpus)


class TimelineJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job. `end_s` is None while it is not over; `waits` are the times in which it was queued."""

    job_id: str
    label: str
    submit_s: float
    end_s: float | None
    held: tuple[Held, ...]
    waits: tuple[tuple[float, float], ...]


class Timeline(msgspec.Struct, frozen=True):
    """One account of the same submissions; `name` says whose."""

    name: str
    jobs: tuple[TimelineJob, ...]

    @property
    def begin_s(self) -> float:
        """The first submission."""
        return min((job.submit_s for job in self.jobs), default=0.0)

    @property
    def end_s(self) -> float:
        """The last moment that anything is told of."""
        return max((until_s for job in self.jobs for until_s in _moments(job)), default=self.begin_s)

    def gpus_by_node(self) -> dict[str, int]:
        """Every node that a job held, with the most GPUs that were held there at a time; n2 before n10."""
        changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for job in self.jobs:
            for held in job.held:
                for node, gpus in held.gpus:
                    changes[node] += [(held.from_s, gpus), (held.until_s, -gpus)]
        # At one moment those who go are gone before others come.
        most = {node: int(max(value for _, value in _running(steps))) for node, steps in changes.items()}
        return {node: most[node] for node in sorted(most, key=_natural)}

    def gpus_in_use(self) -> list[tuple[float, float]]:
        """(when, GPUs held from then on)."""
        return _running(
            change
            for job in self.jobs
            for held in job.held
            for change in ((held.from_s, held.total_gpus), (held.until_s, -held.total_gpus))
        )

    def queue_length(self) -> list[tuple[float, float]]:
        """(when, jobs that waited from then on)."""
        return _running(change for job in self.jobs for wait in job.waits for change in ((wait[0], 1), (wait[1], -1)))


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a timeline, by one formula for what happened and for what is imagined.

    completion: from the first submission to the end, over jobs that are over; wait: to the first start, over jobs that
    started. Seconds. `utilisation` is the share of `gpus` that was held from the first submission to the last end.
    """

    name: str
    jobs: int
    mean_completion_s: float | None
    median_completion_s: float | None
    p90_completion_s: float | None
    mean_wait_s: float | None
    makespan_s: float
    gpu_s: float
    utilisation: float | None
    moves: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What happened beside what would have: `timelines` hold the same jobs, the real one first.

    `assumptions` are sentences; `gpus` is how many there were to be had in each of them.
    """

    timelines: tuple[Timeline, ...]
    gpus: int
    assumptions: tuple[str, ...]


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What a training said of itself over time: (when, samples trained, loss or None), oldest first."""

    job_id: str
    points: tuple[tuple[float, int, float | None], ...]


def timeline_of(jobs: Sequence[JobHistory], name: str = "as it was") -> Timeline:
    """The histories as a timeline. A segment whose GPUs nobody counted shows its nodes, one for a GPU."""
    return Timeline(name, tuple(_job(job) for job in jobs))


def summary(timeline: Timeline, gpus: int) -> Summary:
    """The figures of a timeline on so many GPUs."""
    over = sorted(job.end_s - job.submit_s for job in timeline.jobs if job.end_s is not None)
    waited = [job.held[0].from_s - job.submit_s for job in timeline.jobs if job.held]
    gpu_s = math.fsum(held.total_gpus * (held.until_s - held.from_s) for job in timeline.jobs for held in job.held)
    makespan_s = timeline.end_s - timeline.begin_s
    return Summary(
        name=timeline.name,
        jobs=len(timeline.jobs),
        mean_completion_s=math.fsum(over) / len(over) if over else None,
        median_completion_s=quantile(over, 0.5),
        p90_completion_s=quantile(over, 0.9),
        mean_wait_s=math.fsum(waited) / len(waited) if waited else None,
        makespan_s=makespan_s,
        gpu_s=gpu_s,
        utilisation=gpu_s / (gpus * makespan_s) if gpus and makespan_s > 0 else None,
        moves=sum(a.gpus != b.gpus or a.batch != b.batch for job in timeline.jobs for a, b in pairwise(job.held)),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value below which that share of the ordered values lies, between neighbours by proportion."""
    if not ordered:
        return None
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def only(timeline: Timeline, job_ids: Iterable[str]) -> Timeline:
    """The same account of these jobs alone."""
    wanted = frozenset(job_ids)
    return Timeline(timeline.name, tuple(job for job in timeline.jobs if job.job_id in wanted))


def lanes(timeline: Timeline) -> Iterator[tuple[TimelineJob, Held, str, int, int]]:
    """(job, what it held, node, lowest GPU, GPUs) for a picture with a row for each GPU.

    Which of a node's GPUs a job had is not accounted, so lanes are found here: a job takes the lowest ones that are
    free, in pieces if it must.
    """
    held_there = sorted(
        (
            (held.from_s, job.job_id, job, held, node, gpus)
            for job in timeline.jobs
            for held in job.held
            for node, gpus in held.gpus
        ),
        key=lambda entry: (entry[0], entry[1], entry[4]),
    )
    busy: dict[str, dict[int, float]] = defaultdict(dict)  # node -> GPU -> until when
    for from_s, _, job, held, node, gpus in held_there:
        free = [lane for lane in range(len(busy[node]) + gpus) if busy[node].get(lane, -math.inf) <= from_s][:gpus]
        busy[node].update(dict.fromkeys(free, held.until_s))
        start = free[0]
        for here, following in pairwise([*free, -1]):
            if following != here + 1:
                yield job, held, node, start, here + 1 - start
                start = following


def _job(job: JobHistory) -> TimelineJob:
    last = job.segments[-1]
    return TimelineJob(
        job_id=job.job_id,
        label=f"{job.segments[0].name} of {job.user}",
        submit_s=job.segments[0].submit_s,
        end_s=None if last.open or last.ended_by in WAITING else last.end_s,
        held=tuple(_held(segment) for segment in job.segments if segment.start_s is not None and segment.duration_s),
        waits=tuple(_wait(segment) for segment in job.segments if segment.wait_s),
    )


def _held(segment: Segment) -> Held:
    assert segment.start_s is not None
    names = segment.nodes or ("?",)
    each, more = divmod(segment.gpus or len(names), len(names))
    gpus = tuple((name, each + (number < more)) for number, name in enumerate(names))
    return Held(
        from_s=segment.start_s,
        until_s=segment.end_s,
        gpus=tuple((name, count) for name, count in gpus if count),
        batch=segment.batch,
    )


def _wait(segment: Segment) -> tuple[float, float]:
    until_s = segment.end_s if segment.start_s is None else segment.start_s
    return until_s - segment.wait_s, until_s


def _moments(job: TimelineJob) -> Iterator[float]:
    yield job.submit_s if job.end_s is None else job.end_s
    yield from (held.until_s for held in job.held)
    yield from (until_s for _, until_s in job.waits)


def _running(changes: Iterable[tuple[float, int]]) -> list[tuple[float, float]]:
    """The running sum of changes, one point a moment."""
    by_moment: dict[float, int] = defaultdict(int)
    for at_s, change in changes:
        by_moment[at_s] += change
    total = 0
    found: list[tuple[float, float]] = []
    for at_s in sorted(by_moment):
        total += by_moment[at_s]
        found.append((at_s, float(total)))
    return found


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """n2 before n10."""
    parts: list[tuple[int, int, str]] = []
    number = ""
    for char in f"{name} ":
        if char.isdecimal() and char.isascii():
            number += char
            continue
        if number:
            parts.append((0, int(number), ""))
            number = ""
        parts.append((1, 0, char))
    return tuple(parts)
