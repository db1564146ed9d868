"""The two sockets that everything plugs into: a cluster and a policy.

The live cluster, an imagined one, an observer that never acts and a guard that checks every invariant are all the
same four methods, so what is rehearsed is what runs.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Action, Outcome, Plan
from ones_slurm.model.wire import Progress


class Changed(msgspec.Struct, frozen=True):
    """Something happened to a job that makes a new decision worth while (arrived, ended, first measurement)."""

    job_id: str
    what: str


class Finished(msgspec.Struct, frozen=True):
    """A job says that its script has come to its end; `progress` is the last that it said of its training."""

    job_id: str
    progress: Progress | None = None


Event = Outcome | Changed | Finished


class Cluster(Protocol):
    """A place where jobs run. All time is its `now()`."""

    def now(self) -> float:
        """Unix seconds; never goes backwards."""
        ...

    def observe(self) -> ClusterView:
        """The present state. Raises `Unreachable` when it cannot be had; nothing was changed then."""
        ...

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        """Begins each action, idempotent by (job_id, generation); one outcome per action, in order, without waiting."""
        ...

    def wait(self, until_s: float) -> list[Event]:
        """Carries moves on until `until_s` or until something worth a decision happens; returns what happened."""
        ...


class Policy(Protocol):
    """Who gets what. A pure function: no clock, no chance but `rng`, no memory but what it is given."""

    name: str

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """The plan for this view; the same view and generator state give the same plan, bit by bit."""
        ...
