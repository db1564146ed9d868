"""One policy over one imagined cluster, driven by the live engine."""

import logging
import math
from collections.abc import Callable

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.loop import Engine
from ones_slurm.engine.unwritten import Unwritten
from ones_slurm.model.errors import Failed
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.model.sockets import Policy
from ones_slurm.sim.cluster import ImaginedCluster

log = logging.getLogger(__name__)


def run(
    cluster: ImaginedCluster,
    policy: Policy,
    *,
    interval_s: float = math.inf,
    seed: int = 1,
    journal: Journal | None = None,
    settings: EngineSettings | None = None,
    told: Callable[[int], None] | None = None,
) -> int:
    """Decides every `interval_s` and whenever something happens, until all jobs are over.

    `told` hears how many jobs are over. Returns the number of decisions. Raises `Failed` when a decision breaks an
    invariant, or when jobs wait and nothing will ever happen again.
    """
    engine = Engine(cluster, policy, journal or Unwritten(), settings or EngineSettings(), seed)
    while cluster.unfinished:
        engine.tick()
        if engine.latest.trouble:
            raise Failed(f"policy {policy.name} at {cluster.now():g} s: {engine.latest.trouble}")
        if not cluster.can_go_on():
            stuck = ", ".join(list(cluster.live)[:5])
            raise Failed(
                f"policy {policy.name} starts no more jobs at {cluster.now():g} s, and {cluster.unfinished} wait",
                hint=f"among them {stuck}; can the cluster ever give what they ask for?",
            )
        engine.wait(cluster.now() + interval_s)
        if told is not None:
            told(len(cluster.ended))
    return engine.latest.tick
