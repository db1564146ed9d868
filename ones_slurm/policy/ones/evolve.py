"""The search: generations of candidates, seeded with answers that are good already, best kept.

The number of generations follows from the size of the task and never from a clock, so that a plan depends on the view
and the seed alone; on one core a decision takes milliseconds at 64 GPUs and about a second at 10,000.
"""

import numpy as np

from ones_slurm.policy.ones.exact import cheapest_sizes
from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.operators import crossover, mutate, pad, refresh
from ones_slurm.policy.ones.score import Options
from ones_slurm.policy.ones.throughput import Floats

POPULATION = 16  # as the published one
MOST_GENERATIONS, LEAST_GENERATIONS = 60, 2
# A generation costs so much a job and so much an option of a job (in the latter); both together may not exceed the
# budget, which is some ten milliseconds for small tasks and about a second for the largest.
JOB_COST, SMALL_BUDGET, LARGE_BUDGET = 500.0, 2.5e5, 2e7
# The exact seed is left out beyond so many steps of its table; several prices stand in for it.
EXACT_BUDGET = 4e7
PRICE_STEPS = 24
# With several pools the first few candidates get the best sizes within theirs, in tasks up to so many steps.
SETTLED, SETTLE_BUDGET = 2, 2e6
# So many candidates are placed in the end, the fewer the more jobs there are; most often the first is the best.
PLACED, PLACED_JOBS = (4, 16), 1024
STILL = 0.3  # it ends when nothing was gained for this part of its generations


def evolve(options: Options, seeds: list[Ints], rng: np.random.Generator, *, search: bool = True) -> Ints:
    """(a few, J) the best distinct candidates, the best first, then the best seeds; never worse than any of them.

    Seeds that overdraw a pool are mended first. Without `search` they are only filled up, and the best of them kept.
    """
    jobs = options.cost.shape[0]
    own = [*seeds, *priced_seeds(options)]
    exact = exact_seed(options)
    if exact is not None:
        own.append(exact)
    parents = refresh(options, np.array(own))
    padded = pad(options, parents, options.order)
    parents, costs = _best(options, np.concatenate([parents, padded]), POPULATION)
    count = int(np.clip(PLACED_JOBS // max(jobs, 1), *PLACED))
    first = parents[:count]  # their places may be better in the end
    settles = len(options.pools) > 1 and _exact_cost(options) <= SETTLE_BUDGET and np.isfinite(costs[0])
    still, generations = 0, _generations(options) if search else 0
    for _ in range(generations):
        filled = np.resize(parents, (POPULATION, jobs))
        children = refresh(options, crossover(filled, rng))
        mutants = refresh(options, mutate(options, filled, rng))
        young = np.concatenate([children, mutants])
        keep = np.concatenate([np.zeros(children.shape, bool), (mutants != filled) & (mutants > 0)])
        young = pad(options, young, _shaken(options.order, rng), keep)
        if settles:
            young = np.concatenate([young, [settle(options, one, rng) for one in parents[:SETTLED]]])
        before = costs[0]
        parents, costs = _best(options, np.concatenate([parents, young]), POPULATION)
        still = 0 if costs[0] < before * (1.0 - 1e-9) else still + 1
        if still > STILL * generations:
            break
    return np.concatenate([parents[:count], first, *([] if exact is None else [exact[None]])])


def exact_seed(options: Options) -> Ints | None:
    """The optimum where there is one pool and the task is not too large for it; else None."""
    if len(options.pools) != 1:
        return None
    if _exact_cost(options) > EXACT_BUDGET:
        return None
    try:
        return cheapest_sizes(options.cost, options.units, int(options.pools[0]))
    except ValueError:  # those that may not be moved hold more than there is: nodes went down under them
        return None


def settle(options: Options, choice: Ints, rng: np.random.Generator) -> Ints:
    """(J,) the candidate with the best sizes that its jobs can have in their pools; who waits tries a random one."""
    pools = options.pool[choice]
    pools = np.where(pools < 0, rng.integers(0, len(options.pools), len(choice)), pools)
    settled = choice.copy()
    for pool, room in enumerate(options.pools.tolist()):
        mine = np.flatnonzero(pools == pool)
        there = np.flatnonzero((options.pool == pool) | (options.pool < 0))
        if len(mine):
            settled[mine] = there[cheapest_sizes(options.cost[np.ix_(mine, there)], options.units[there], room)]
    return settled


def priced_seeds(options: Options) -> list[Ints]:
    """Best options at a price on units: at the lowest prices that overdraw nothing, and just below."""
    low, high = np.zeros(len(options.pools)), np.full(len(options.pools), _high_price(options))
    in_pool = np.maximum(options.pool, 0)
    price = low
    for _ in range(PRICE_STEPS):
        choice = _priced(options, price, in_pool)
        over = options.used(choice[None, :])[0] > options.pools
        low, high = np.where(over, price, low), np.where(over, high, price)
        price = (low + high) / 2.0
    return [_priced(options, high, in_pool), _priced(options, low, in_pool)]


def _exact_cost(options: Options) -> float:
    """Steps of the tables that hold every pool's optimum."""
    return options.cost.size * (float(options.pools.mean()) + 1.0) / len(options.pools)


def _priced(options: Options, price: Floats, in_pool: Ints) -> Ints:
    cheapest: Ints = (options.cost + price[in_pool] * options.units).argmin(axis=1)
    return cheapest


def _high_price(options: Options) -> float:
    finite = options.cost[np.isfinite(options.cost)]
    return float(finite.max(initial=1.0)) + 1.0


def _generations(options: Options) -> int:
    jobs, count = options.cost.shape
    one = jobs * (JOB_COST + count)
    budget = min(max(SMALL_BUDGET, 6.0 * one), LARGE_BUDGET)
    return int(np.clip(budget / max(one, 1.0), LEAST_GENERATIONS, MOST_GENERATIONS))


def _shaken(order: Ints, rng: np.random.Generator) -> Ints:
    """The order of service with some jobs earlier and some later, so that padding does not always end the same."""
    return order[
        np.argsort(np.arange(len(order)) + rng.normal(0.0, 0.15 * len(order) + 1.0, len(order)), kind="stable")
    ]


def _best(options: Options, candidates: Ints, count: int) -> tuple[Ints, Floats]:
    """The cheapest distinct candidates and their costs; equal ones in the order in which they came."""
    _, first = np.unique(candidates, axis=0, return_index=True)
    candidates = candidates[np.sort(first)]
    costs = options.costs(candidates)
    best = np.argsort(costs, kind="stable")[:count]
    return candidates[best], costs[best]
