"""Tiresias: discretised two-dimensional least attained service (Gu et al., NSDI 2019, section 3.2).

Service is GPUs × time. Two queues: jobs start in the first and sink into the second once they have had
`THRESHOLD_GPU_S`; within a queue the order is that of submission. Sizes are those that were asked for, and whoever is
not among the first that fit is stopped with a checkpoint.
"""

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.policy.peers.placing import free_gpus, movable, put, take_emptiest, unmoved

# Between the queues of the evaluation of Pollux (OSDI 2021), which the reference values here come from: 16 GPU-hours.
THRESHOLD_GPU_S = 16 * 3600.0


class Tiresias:
    """Two queues, first fit through both of them; `threshold_gpu_s` is to suit the jobs of the site."""

    name = "tiresias"

    def __init__(self, threshold_gpu_s: float = THRESHOLD_GPU_S) -> None:
        self._threshold_gpu_s = threshold_gpu_s

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Serves the queues in turn; those who run and are served again stay where they are."""
        jobs = movable(view)
        left = sum(free_gpus(view, unmoved(view, jobs)).values())
        served: list[JobView] = []
        targets: list[Target] = []
        for job in sorted(jobs, key=lambda job: attained_gpu_s(job, view.now_s) >= self._threshold_gpu_s):
            if job.asked_gpus <= left:
                left -= job.asked_gpus
                served.append(job)
            elif job.allocation:
                targets.append(put(job, (), "has had more than others, who need its GPUs"))
        stopped = {target.job_id for target in targets}
        free = free_gpus(view, (job for job in view.jobs if job.job_id not in stopped))
        targets += [
            put(job, take_emptiest(free, job.asked_gpus), "has had the least so far")
            for job in served
            if not job.allocation
        ]
        return Plan(tuple(targets))


def attained_gpu_s(job: JobView, now_s: float) -> float:
    """GPU-seconds that the job has had."""
    return job.served_gpu_s + (job.gpus * (now_s - job.start_s) if job.start_s is not None else 0.0)
