"""A few series for Prometheus, all named `ones_…` in base units; sums and states only, for the page has no door.

No series carries a job, a user or a node in its labels: a year of jobs makes no more series than an hour.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from ones_slurm import __version__
from ones_slurm.engine.loop import Latest
from ones_slurm.model.cluster import ClusterView, JobState
from ones_slurm.model.plan import Action, Outcome, Status

_FINAL = (Status.DONE, Status.REFUSED, Status.FAILED)
# Ours: a move in memory takes seconds, a requeue up to Slurm's two minutes of delay and more in a full queue.
_MOVE_BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """The series of one daemon: gauges are read off the latest tick when somebody asks, moves are counted."""

    def __init__(self, latest: Callable[[], Latest]) -> None:
        self._latest = latest
        self._registry = CollectorRegistry()
        self._moves = Counter("ones_moves", "Moves that have ended, by how", ["status"], registry=self._registry)
        for status in _FINAL:
            self._moves.labels(status.value)
        self._took = Histogram(
            "ones_move_seconds",
            "Time from the beginning of a move to its end, by kind",
            ["kind"],
            buckets=_MOVE_BUCKETS_S,
            registry=self._registry,
        )
        self._begun: dict[tuple[str, int], tuple[str, float]] = {}
        ProcessCollector(namespace="ones", registry=self._registry)
        self._registry.register(self)

    def began(self, actions: Sequence[Action], now_s: float) -> None:
        """Remembers when these actions were first sent."""
        for action in actions:
            kind = str(action.__struct_config__.tag)
            self._begun.setdefault((action.job_id, action.generation), (kind, now_s))

    def ended(self, outcomes: Iterable[Outcome], now_s: float) -> None:
        """Counts final outcomes."""
        for outcome in outcomes:
            if outcome.status not in _FINAL:
                continue
            self._moves.labels(outcome.status.value).inc()
            kind, began_s = self._begun.pop((outcome.job_id, outcome.generation), ("", 0.0))
            if kind and outcome.status is Status.DONE:
                self._took.labels(kind).observe(max(now_s - began_s, 0.0))

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The rest, off the latest tick; called by the registry."""
        latest = self._latest()
        yield InfoMetricFamily("ones_onesd", "The program", value={"version": __version__})
        yield CounterMetricFamily("ones_ticks", "Looks at Slurm since the journal began", value=latest.tick)
        yield GaugeMetricFamily("ones_tick_seconds", "Time that the last look and plan took", value=latest.took_s)
        yield GaugeMetricFamily(
            "ones_trouble", "1 while there is no newer look, since Slurm or the disk fails", value=bool(latest.trouble)
        )
        if latest.view is not None:
            yield from _of_view(latest.view)


def _of_view(view: ClusterView) -> Iterator[Metric]:
    yield GaugeMetricFamily("ones_last_tick_timestamp_seconds", "When Slurm was last looked at", value=view.now_s)
    jobs = GaugeMetricFamily("ones_jobs", "Unfinished jobs", labels=["state", "elastic"])
    for (job_state, elastic), count in Tally((job.state, job.elastic) for job in view.jobs).items():
        jobs.add_metric([job_state.value, "yes" if elastic else "no"], count)
    yield jobs
    taken = {name for job in view.jobs for name in job.nodes}
    kinds = [("held" if node.name in taken else "free" if node.usable else "unusable", node) for node in view.nodes]
    nodes = GaugeMetricFamily("ones_nodes", "Nodes: held by jobs, free, or not usable", labels=["state"])
    held_gpus = sum(job.gpus for job in view.jobs)
    gpus = GaugeMetricFamily("ones_gpus", "GPUs: held by jobs, free, or not usable", labels=["state"])
    unusable = sum(node.gpus for kind, node in kinds if kind == "unusable")
    free = max(sum(node.gpus for node in view.nodes) - held_gpus - unusable, 0)
    for state in ("held", "free", "unusable"):
        nodes.add_metric([state], sum(kind == state for kind, _ in kinds))
    for state, count in (("held", held_gpus), ("free", free), ("unusable", unusable)):
        gpus.add_metric([state], count)
    yield nodes
    yield gpus
    waiting = [job for job in view.jobs if job.state is JobState.PENDING]
    asked = sum(job.asked_gpus or job.asked_nodes * job.gpus_per_node for job in waiting)
    yield GaugeMetricFamily("ones_waiting_gpus", "GPUs that waiting jobs ask for", value=asked)
    oldest_s = max((view.now_s - job.submit_s for job in waiting), default=0.0)
    yield GaugeMetricFamily("ones_oldest_wait_seconds", "Since when the oldest waiting job waits", value=oldest_s)
    moving = sum(job.move is not None for job in view.jobs)
    yield GaugeMetricFamily("ones_moves_under_way", "Jobs in the middle of a move", value=moving)
