"""First come, first served at the size that was asked for, with or without overtaking. The oldest baseline there is."""

import numpy as np

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.peers.placing import free_gpus, put, take_emptiest, waiting


class StrictFifo:
    """Nobody overtakes: the first job that does not fit makes all behind it wait."""

    name = "strict-fifo"
    overtaking = False

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Starts what fits; nobody is ever stopped or moved."""
        free = free_gpus(view)
        left = sum(free.values())
        targets = []
        for job in waiting(view):
            if job.asked_gpus <= left:
                left -= job.asked_gpus
                targets.append(put(job, take_emptiest(free, job.asked_gpus), "is next, and fits"))
            elif not self.overtaking or not left:
                break
        return Plan(tuple(targets))


class FirstFit(StrictFifo):
    """Whoever fits starts, in the order of submission; a large job may wait for ever behind small ones."""

    name = "first-fit"
    overtaking = True
