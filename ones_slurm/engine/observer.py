"""A cluster that is only looked at: every plan is made and shown, and nothing is ever done."""

from collections.abc import Sequence

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Action, Outcome, Status
from ones_slurm.model.sockets import Cluster, Event


class Observer:
    """Wraps a cluster and answers OBSERVED to every action, without passing it on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now(self) -> float:
        return self._cluster.now()

    def observe(self) -> ClusterView:
        return self._cluster.observe()

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        """Does nothing."""
        return [
            Outcome(action.job_id, action.generation, Status.OBSERVED, "shown only, nothing was done")
            for action in actions
        ]

    def wait(self, until_s: float) -> list[Event]:
        return self._cluster.wait(until_s)
