"""The best sizes where jobs are coupled by nothing but the capacity: a knapsack by dynamic programming.

It is the oracle of the tests and one of the seeds of the search.
"""

import numpy as np

from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.throughput import Floats


def cheapest_sizes(cost: Floats, units: Ints, capacity: int) -> Ints:
    """(J,) the option of each job with the least total cost whose units fit into `capacity`.

    `cost` (J, O) may be infinite where an option is not allowed, but each job needs one that is; `units` (O,) is what
    an option takes. O(J · capacity · O). Raises ValueError when nothing fits.
    """
    jobs, options = cost.shape
    top = np.arange(capacity + 1)
    from_where = top[None, :] - units[:, None]  # (O, capacity + 1)
    outside = from_where < 0
    from_where = np.where(outside, capacity + 1, from_where)
    best = np.zeros(capacity + 2)  # least cost of the jobs so far within so many units; the last entry is "not at all"
    best[-1] = np.inf
    choices = np.empty((jobs, capacity + 1), np.int16 if options < 1 << 15 else np.int64)
    for j in range(jobs):
        reached = best[from_where] + cost[j][:, None]
        choices[j] = reached.argmin(axis=0)
        best[:-1] = reached[choices[j], top]
    if not np.isfinite(best[capacity]):
        raise ValueError(f"the {jobs} jobs cannot fit into {capacity} units")
    chosen = np.empty(jobs, int)
    left = capacity
    for j in range(jobs - 1, -1, -1):
        chosen[j] = choices[j, left]
        left -= int(units[chosen[j]])
    return chosen
