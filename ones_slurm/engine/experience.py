"""What jobs have shown so far, kept in the journal and put into every view: how fast they were at each size, how they
went, and what a move has really cost here. Without it a policy could only guess.
"""

import contextlib
import math
from collections.abc import Sequence

import msgspec

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.records import Known
from ones_slurm.model.cluster import ClusterView, JobState, JobView, Past, Speed
from ones_slurm.model.errors import Failed
from ones_slurm.model.plan import Action, Outcome
from ones_slurm.model.settings import PolicyChoice
from ones_slurm.model.sockets import Cluster, Event, Finished
from ones_slurm.model.wire import Progress

# How much a further report of the same shape counts: other jobs on a machine come and go (ours: the last few matter).
NEW_COUNTS = 0.3
# A measurement that confirms what is known to a hundredth is not written down again (ours).
SAME_WITHIN = 0.01
# Shapes and reports that are kept of a job, and ended jobs that a view tells of (ours: enough for every fit).
MOST_SPEEDS, MOST_REPORTS, MOST_PAST = 64, 16, 200
# The next report that is worth keeping comes a quarter further on (ours: a life is told in some sixteen).
REPORT_EVERY = 1.25
DEFAULT_CHOICE = PolicyChoice()


class Experienced:
    """Wraps a cluster whose views lack what jobs measured, and adds it; `choice` says whether ended jobs as well, and
    how much each job counts.
    """

    def __init__(self, cluster: Cluster, journal: Journal, choice: PolicyChoice = DEFAULT_CHOICE) -> None:
        self._cluster, self._journal, self._choice = cluster, journal, choice
        self._known = journal.known()
        self._past = journal.past(MOST_PAST) if choice.history else ()
        self._pauses = journal.pauses()
        self._moved = False
        self._heard: dict[str, int] = {}  # samples in the last report of each job, for one report counts once

    def now(self) -> float:
        return self._cluster.now()

    def observe(self) -> ClusterView:
        """The cluster's view with what is known of each job, of ended ones and of moves. Raises what a cluster does."""
        view = self._cluster.observe()
        if self._moved:
            self._pauses, self._moved = self._journal.pauses(), False
        self._learn(view)
        pauses = {**view.pauses, **self._pauses}
        return msgspec.structs.replace(
            view,
            jobs=tuple([self._told(job) for job in view.jobs]),
            pauses=pauses,
            pause_s=pauses.get("requeue", view.pause_s),
            past=self._past,
        )

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        return self._cluster.act(actions)

    def wait(self, until_s: float) -> list[Event]:
        """Passes events on, and keeps what a finished job leaves to later ones."""
        events = self._cluster.wait(until_s)
        for event in events:
            if isinstance(event, Finished) and event.job_id in self._known:
                with contextlib.suppress(Failed):  # the disk is full: tried again at the next look
                    self._end(event.job_id, event.progress)
            self._moved = self._moved or isinstance(event, Outcome)
        return events

    def _learn(self, view: ClusterView) -> None:
        there = {job.job_id: job for job in view.jobs}
        for job_id in [job_id for job_id in self._known if job_id not in there]:
            self._end(job_id, None)
        news = {}
        for job_id, job in there.items():
            if job.progress is None or job.progress.samples == self._heard.get(job_id) or not _trains(job):
                continue
            self._heard[job_id] = job.progress.samples
            before = self._known.get(job_id, Known(user=job.user, recipe=job.recipe))
            after = learnt(before, job, job.progress)
            if after is not before:
                news[job_id] = after
        if news:
            self._journal.keep(news)
            self._known.update(news)

    def _end(self, job_id: str, last: Progress | None) -> None:
        """Only who came to an end by itself says how long jobs of its kind are."""
        known = self._known[job_id]
        samples = max(last.samples, *(report.samples for report in known.reports), 0) if last is not None else 0
        past = Past(user=known.user, recipe=known.recipe, speeds=known.speeds, reports=known.reports, samples=samples)
        self._journal.end_of(job_id, past, self.now())
        del self._known[job_id]
        self._heard.pop(job_id, None)
        if self._choice.history:
            self._past = (*self._past, past)[-MOST_PAST:]

    def _told(self, job: JobView) -> JobView:
        known = self._known.get(job.job_id)
        speeds = job.speeds or (known.speeds if known is not None else ())
        return msgspec.structs.replace(job, speeds=speeds, weight=self._choice.weight(job.user, job.account))


def learnt(known: Known, job: JobView, progress: Progress) -> Known:
    """What is known of a training job after another report; the very same where that says nothing new."""
    speeds = _with(known.speeds, _speed(job, progress.samples_per_s))
    reports = _kept(known.reports, progress)
    if speeds is known.speeds and reports is known.reports:
        return known
    return msgspec.structs.replace(known, speeds=speeds, reports=reports)


def _trains(job: JobView) -> bool:
    """Whether its word is about the size that it is seen at: a wrapper answers, and no move is under way."""
    return job.state is JobState.RUNNING and job.elastic and job.move is None and bool(job.nodes) and job.batch > 0


def _speed(job: JobView, samples_per_s: float) -> Speed | None:
    if not (math.isfinite(samples_per_s) and samples_per_s > 0.0):
        return None
    gpus = job.gpus or len(job.nodes)
    return Speed(len(job.nodes), gpus, max(job.batch // gpus, 1), job.batch / samples_per_s, 0.0)


def _with(speeds: tuple[Speed, ...], new: Speed | None) -> tuple[Speed, ...]:
    """The measurements with one more, the latest last; earlier ones of the same shape fade."""
    if new is None:
        return speeds
    shape = (new.nodes, new.gpus, new.local_batch)
    before = next((old for old in speeds if (old.nodes, old.gpus, old.local_batch) == shape), None)
    if before is not None:
        step_s = before.step_s + NEW_COUNTS * (new.step_s - before.step_s)
        if speeds[-1] is before and abs(step_s - before.step_s) <= SAME_WITHIN * before.step_s:
            return speeds
        new = msgspec.structs.replace(new, step_s=step_s)
    return (*(old for old in speeds if old is not before), new)[-MOST_SPEEDS:]


def _kept(reports: tuple[Progress, ...], new: Progress) -> tuple[Progress, ...]:
    if new.samples <= 0 or (reports and new.samples < REPORT_EVERY * reports[-1].samples):
        return reports
    reports = (*reports, new)
    return reports if len(reports) <= MOST_REPORTS else reports[::2]
