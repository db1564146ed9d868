"""A few series for Prometheus; sums and states only, for the page has no door."""

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ones_slurm.model.cluster import JobView
from ones_slurm.model.plan import Outcome, Status


class Metrics:
    """The series of one daemon. Written by the engine's thread, read by the door."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._tick_s = Histogram(
            "ones_tick_seconds",
            "Time for one look at Slurm, one plan and its actions",
            registry=self._registry,
            buckets=(0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        )
        self._last_tick_s = Gauge(
            "ones_last_tick_timestamp_seconds", "When the last tick ended", registry=self._registry
        )
        self._jobs = Gauge("ones_jobs", "Unfinished jobs", ["state", "elastic"], registry=self._registry)
        self._moves = Counter("ones_moves", "Moves that have ended, by how", ["status"], registry=self._registry)

    def ticked(self, now_s: float, took_s: float, jobs: Iterable[JobView]) -> None:
        """After each tick: the counts of jobs replace the former ones."""
        self._tick_s.observe(took_s)
        self._last_tick_s.set(now_s)
        self._jobs.clear()
        for (state, elastic), count in Tally((job.state, job.elastic) for job in jobs).items():
            self._jobs.labels(state.value, "yes" if elastic else "no").set(count)

    def ended(self, outcomes: Iterable[Outcome]) -> None:
        """Counts final outcomes."""
        for outcome in outcomes:
            if outcome.status in (Status.DONE, Status.REFUSED, Status.FAILED):
                self._moves.labels(outcome.status.value).inc()

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)
