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
MOST_GENERATIONS, LEAST_GENERATIONS = 6, 2
# Job-options that are weighed in all; some 50 million a second on one core of 2020.
BUDGET = 3e7
# The exact seed is left out beyond so many steps of its table; several prices stand in for it.
EXACT_BUDGET = 4e7
PRICE_STEPS = 24
STILL = 3  # generations without any gain after which it ends


def evolve(options: Options, seeds: list[Ints], rng: np.random.Generator, survivors: int = 4) -> Ints:
    """(up to `survivors`, J) the best distinct candidates, the best first; never worse than any seed.

    Seeds that overdraw a pool are mended first.
    """
    jobs = options.cost.shape[0]
    own = [*seeds, *priced_seeds(options)]
    exact = exact_seed(options)
    if exact is not None:
        own.append(exact)
    parents = refresh(options, np.array(own))
    padded = pad(options, parents, options.order)
    parents, costs = _best(options, np.concatenate([parents, padded]), POPULATION)
    still = 0
    for _ in range(_generations(options)):
        filled = np.resize(parents, (POPULATION, jobs))
        young = np.concatenate([crossover(filled, rng), mutate(options, filled, rng)])
        young = pad(options, refresh(options, young), _shaken(options.order, rng))
        best = costs[0]
        parents, costs = _best(options, np.concatenate([parents, young]), POPULATION)
        still = 0 if costs[0] < best * (1.0 - 1e-9) else still + 1
        if still == STILL:
            break
    return parents[:survivors]


def exact_seed(options: Options) -> Ints | None:
    """The optimum where there is one pool and the task is not too large for it; else None."""
    if len(options.pools) != 1:
        return None
    jobs, count = options.cost.shape
    room = int(options.pools[0])
    if jobs * count * (room + 1.0) > EXACT_BUDGET:
        return None
    try:
        return cheapest_sizes(options.cost, options.units, room)
    except ValueError:  # those that may not be moved hold more than there is: nodes went down under them
        return None


def priced_seeds(options: Options) -> list[Ints]:
    """Best options at a price on units: at the lowest prices found that overdraw nothing, and at the next lower ones."""
    low, high = np.zeros(len(options.pools)), np.full(len(options.pools), _high_price(options))
    in_pool = np.maximum(options.pool, 0)
    price = low
    for _ in range(PRICE_STEPS):
        choice = _priced(options, price, in_pool)
        over = options.used(choice[None, :])[0] > options.pools
        low, high = np.where(over, price, low), np.where(over, high, price)
        price = (low + high) / 2.0
    return [_priced(options, high, in_pool), _priced(options, low, in_pool)]


def _priced(options: Options, price: Floats, in_pool: Ints) -> Ints:
    cheapest: Ints = (options.cost + price[in_pool] * options.units).argmin(axis=1)
    return cheapest


def _high_price(options: Options) -> float:
    finite = options.cost[np.isfinite(options.cost)]
    return float(finite.max(initial=1.0)) + 1.0


def _generations(options: Options) -> int:
    weighed = 2.0 * POPULATION * options.cost.size
    return int(np.clip(BUDGET / max(weighed, 1.0), LEAST_GENERATIONS, MOST_GENERATIONS))


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
