"""Elastic allocation by dynamic programming: the sizes that maximise the sum of the jobs' scaling factors.

After Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads", 2020, arXiv 2006.13878.

The scaling factor of a job at k GPUs is its speed there, at its best batch, over that at its smallest size. Jobs are
admitted in the order of submission for as long as all minimum sizes fit.
"""

import math

import numpy as np

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.peers.elastic import Candidate, candidates, per_node, plan, room_for
from ones_slurm.policy.peers.goodput import Floats

# A new solution replaces the present sizes only if its sum is this much larger (ours: each change costs a pause).
CLEARLY = 1.05


class ElasticDp:
    """P(j, K) = max over k of P(j - 1, K - k) + S_j(k), exactly."""

    name = "elastic-dp"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Solves the programme over all admitted jobs; keeps what is, unless somebody waits or much is gained."""
        jobs = candidates(view)
        total = room_for(view, jobs)
        admitted: list[Candidate] = []
        left = total
        for each in sorted(jobs, key=lambda each: not each.job.allocation):
            if each.low <= left:
                left -= each.low
                admitted.append(each)
        factors = [_factors(each, total, per_node(view)) for each in admitted]
        best, worth = solve(factors, total)
        sizes = {each.job.job_id: size for each, size in zip(admitted, best, strict=True)}
        held = [each.job.gpus for each in admitted]
        if all(held) and sum(held) <= total:
            now = math.fsum(float(factor[gpus]) for factor, gpus in zip(factors, held, strict=True))
            if worth < CLEARLY * now:
                sizes = {each.job.job_id: each.job.gpus for each in admitted}
        return plan(view, jobs, sizes, "adds the most to the sum of all scaling factors")


def solve(factors: list[Floats], total: int) -> tuple[list[int], float]:
    """The sizes (one for each job) with the largest sum of factors that need at most `total` GPUs, and that sum."""
    best = np.zeros(total + 1)
    choices = []
    for factor in factors:
        # rest[k, K] = best with K - k GPUs for the jobs before this one
        ks = np.arange(total + 1)
        rest = np.where(ks[None, :] >= ks[:, None], best[np.maximum(ks[None, :] - ks[:, None], 0)], -np.inf)
        summed = factor[:, None] + rest
        choices.append(np.argmax(summed, axis=0))
        best = np.max(summed, axis=0)
    sizes = []
    left = int(np.argmax(best))
    worth = float(best[left])
    for choice in reversed(choices):
        sizes.append(int(choice[left]))
        left -= sizes[-1]
    return sizes[::-1], worth


def _factors(each: Candidate, total: int, per_node: int) -> Floats:
    """(total + 1,) scaling factor by GPUs; impossible sizes are -inf."""
    factor = np.full(total + 1, -np.inf)
    speed = each.speed(per_node)
    sizes = np.arange(each.low, min(each.high, total) + 1)
    if speed is None or speed[each.low] <= 0:
        factor[sizes] = 1.0 - 1e-6 * (sizes - each.low)
    else:
        factor[sizes] = speed[sizes] / speed[each.low]
    return factor
