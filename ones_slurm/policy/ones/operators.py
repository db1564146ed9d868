"""How candidates come about, as arrays over the whole population: rows are candidates, columns jobs, values options.

The names are those of ONES (arXiv 2108.03645): refresh, uniform crossover, mutation and padding.
"""

import numpy as np

from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.score import Options
from ones_slurm.policy.ones.situation import Bools

# Of the jobs of a candidate about so many are thrown out, get any other of their options, the next size, or the option
# of another job (ours: the paper only throws out, three in ten, and its population was seen to collapse to one).
CHANGES = 3.0


def refresh(options: Options, choice: Ints) -> Ints:
    """(K, J) candidates without options that are not allowed, and within the pools: late jobs give way first."""
    jobs, order = np.arange(choice.shape[1]), options.order
    least = np.where(np.isfinite(options.cost), options.units, np.iinfo(int).max).argmin(axis=1)  # (J,) 0: may wait
    choice = np.where(np.isfinite(options.cost[jobs[None, :], choice]), choice, least)
    kept, there = options.units[least], options.pool[least]
    units, pool = options.units[choice], options.pool[choice]
    over = np.zeros(units.shape, bool)
    for p, room in enumerate(options.pools):
        more = np.where(pool == p, np.where(there == p, units - kept, units), 0)[:, order].cumsum(axis=1)
        over[:, order] |= (pool[:, order] == p) & (more > room - kept[there == p].sum())
    return np.where(over, least, choice)


def crossover(parents: Ints, rng: np.random.Generator) -> Ints:
    """(K, J) children: job by job, each pair of two random parents swaps with even chance."""
    count, jobs = parents.shape
    first = parents[rng.permutation(count)]
    second = np.roll(first, 1, axis=0)
    return np.where(rng.random((count, jobs)) < 0.5, first, second)


def mutate(options: Options, parents: Ints, rng: np.random.Generator) -> Ints:
    """(K, J) mutants: a few jobs wait, or get any of their options, the next size, or what another job has."""
    count, jobs = parents.shape
    kind = (rng.random((count, jobs)) * jobs / CHANGES * 4.0).astype(int)  # beyond 3: unchanged
    last = len(options.units) - 1
    ways = [
        np.zeros_like(parents),
        rng.integers(0, last + 1, (count, jobs)),
        np.clip(parents + rng.choice([-1, 1], (count, jobs)), 0, last),
        np.take_along_axis(parents, rng.integers(0, jobs, (count, jobs)), axis=1),
    ]
    mutants: Ints = np.choose(np.minimum(kind, 4), [*ways, parents])
    return mutants


def pad(options: Options, choice: Ints, order: Ints, keep: Bools | None = None) -> Ints:
    """(K, J) candidates in which every job, in `order`, has taken its cheapest option that fits beside all others.

    `keep` (K, J) marks those that shall stay as they are, so that what a mutation did is not undone at once.
    """
    choice = choice.copy()
    free = options.pools - options.used(choice)  # (K, P)
    rows = np.arange(len(choice))
    in_pool = np.maximum(options.pool, 0)
    waiting = options.pool < 0
    single = len(options.pools) == 1
    for j in order.tolist():
        mine = choice[:, j]
        units, pool = options.units[mine], in_pool[mine]
        free[rows, pool] += units
        room = free if single else free[:, in_pool]  # (K, O)
        cost = np.where((options.units <= room) | waiting, options.cost[j], np.inf)
        best = cost.argmin(axis=1)
        mine = best if keep is None else np.where(keep[:, j], mine, best)
        choice[:, j] = mine
        free[rows, in_pool[mine]] -= options.units[mine]
    return choice
