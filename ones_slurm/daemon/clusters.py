"""Two more faces of a cluster: one that keeps to a single user's jobs, one that is watched."""

from collections.abc import Callable, Sequence

import msgspec

from ones_slurm.daemon.metrics import Metrics
from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Action, Outcome
from ones_slurm.model.sockets import Cluster, Event


class OwnJobs:
    """Shows everybody's jobs, for they hold nodes, and lets only those of `user` be moved."""

    def __init__(self, cluster: Cluster, user: str) -> None:
        self._cluster, self._user = cluster, user

    def now(self) -> float:
        return self._cluster.now()

    def observe(self) -> ClusterView:
        """The cluster's view, with the jobs of others rigid."""
        view = self._cluster.observe()
        jobs = tuple(
            job
            if job.user == self._user
            else msgspec.structs.replace(job, wish=None, elastic=False, why_rigid="it belongs to another user")
            for job in view.jobs
        )
        return msgspec.structs.replace(view, jobs=jobs)

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        return self._cluster.act(actions)

    def wait(self, until_s: float) -> list[Event]:
        return self._cluster.wait(until_s)


class Watched:
    """Counts what passes, and calls `alive` whenever the engine comes by, which it does about once a second."""

    def __init__(self, cluster: Cluster, metrics: Metrics, alive: Callable[[], None]) -> None:
        self._cluster, self._metrics, self._alive = cluster, metrics, alive

    def now(self) -> float:
        return self._cluster.now()

    def observe(self) -> ClusterView:
        self._alive()
        return self._cluster.observe()

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        self._metrics.began(actions, self._cluster.now())
        outcomes = self._cluster.act(actions)
        self._metrics.ended(outcomes, self._cluster.now())
        return outcomes

    def wait(self, until_s: float) -> list[Event]:
        self._alive()
        events = self._cluster.wait(until_s)
        self._metrics.ended((event for event in events if isinstance(event, Outcome)), self._cluster.now())
        return events
