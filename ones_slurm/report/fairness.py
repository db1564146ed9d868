"""Finish-time fairness (Mahajan et al., Themis, NSDI 2020): was a job slower than on its fair share of the cluster?

Its rho is the completion time over the time that its work would have taken on the cluster's GPUs divided by the average
number of unfinished jobs meanwhile. Above 1 the cluster was unfair to it. What a job would do at another size is not
known to accounting, so its work is taken as GPU-seconds (perfect scaling), and a share outside of the sizes that it had
is the nearest of these.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ones_slurm.report.figures import job_figures
from ones_slurm.report.segments import JobHistory


def fairness(
    jobs: Iterable[JobHistory], spans: Sequence[tuple[float, float]], gpus: int
) -> dict[tuple[str, str], float]:
    """rho of each finished job that held GPUs, by job id and user.

    `spans` are submission and end of all jobs of the time, `gpus` those of the cluster.
    """
    times = np.array(sorted(at_s for span in spans for at_s in span))
    if not len(times):
        return {}
    steps = np.zeros(len(times))
    for begin_s, end_s in spans:
        steps[np.searchsorted(times, begin_s)] += 1
        steps[np.searchsorted(times, end_s)] -= 1
    area = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(times))])
    found = {}
    for job in jobs:
        figures, sizes = job_figures(job), [segment.gpus for segment in job.segments if segment.gpu_s]
        if figures.completion_s is None or not sizes:
            continue
        begin_s = float(job.segments[0].submit_s)
        lived_s = max(float(figures.completion_s), 1.0)
        crowd = (np.interp(begin_s + lived_s, times, area) - np.interp(begin_s, times, area)) / lived_s
        fair = min(max(gpus / max(float(crowd), 1.0), min(sizes)), max(sizes))
        found[job.job_id, job.user] = lived_s * fair / figures.gpu_s
    return found
