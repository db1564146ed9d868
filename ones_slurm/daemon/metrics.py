"""A few series for Prometheus; sums and states only, for the page has no door."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from ones_slurm.engine.loop import Latest
from ones_slurm.model.plan import Outcome, Status


class Metrics:
    """The series of one daemon: gauges are read off the latest tick when somebody asks, moves are counted."""

    def __init__(self, latest: Callable[[], Latest]) -> None:
        self._latest = latest
        self._registry = CollectorRegistry()
        self._moves = Counter("ones_moves", "Moves that have ended, by how", ["status"], registry=self._registry)
        for status in (Status.DONE, Status.REFUSED, Status.FAILED):
            self._moves.labels(status.value)
        self._registry.register(self)

    def ended(self, outcomes: Iterable[Outcome]) -> None:
        """Counts final outcomes."""
        for outcome in outcomes:
            if outcome.status in (Status.DONE, Status.REFUSED, Status.FAILED):
                self._moves.labels(outcome.status.value).inc()

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The gauges; called by the registry."""
        latest = self._latest()
        yield GaugeMetricFamily("ones_tick_seconds", "Time that the last look and plan took", value=latest.took_s)
        if latest.view is None:
            return
        yield GaugeMetricFamily(
            "ones_last_tick_timestamp_seconds", "When the last look at Slurm was taken", value=latest.view.now_s
        )
        jobs = GaugeMetricFamily("ones_jobs", "Unfinished jobs", labels=["state", "elastic"])
        for (state, elastic), count in Tally((job.state, job.elastic) for job in latest.view.jobs).items():
            jobs.add_metric([state.value, "yes" if elastic else "no"], count)
        yield jobs
