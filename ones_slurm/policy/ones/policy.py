"""ONES as we ship it: an evolutionary search over sizes and pools, seeded with the rule, the optimum and what is."""

import numpy as np

from ones_slurm.model.cluster import Allocation, ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.ones.evolve import evolve
from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.plans import placed, plan_of
from ones_slurm.policy.ones.rule import psrpt_sizes
from ones_slurm.policy.ones.score import Options, options_of, placing_cost
from ones_slurm.policy.ones.situation import Situation, situation_of


class Ones:
    """No plan is worse, by `score`, than leaving all as it is, than the rule's and than the exact optimum of sizes.

    `history` lets a job profit from ended ones of the same user and recipe; `search` off leaves the seeds alone.
    """

    name = "ones"

    def __init__(self, *, history: bool = True, search: bool = True) -> None:
        self._history, self._search = history, search

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """Predict, weigh, search, place."""
        at = situation_of(view, history=self._history)
        if not at.jobs:
            return Plan()
        rule = psrpt_sizes(at)
        options = options_of(at, rule)
        seeds = [options.held, options.choice(*rule)]
        best = evolve(options, seeds, rng) if self._search else np.array(seeds)
        choice, allocations = _cheapest_placed(view, at, options, [*best, *seeds])
        sizes, pools = options.units[choice], options.pool[choice]
        return plan_of(view, at, sizes, pools, allocations)


def _cheapest_placed(
    view: ClusterView, at: Situation, options: Options, candidates: list[Ints]
) -> tuple[Ints, dict[str, Allocation] | None]:
    """The best of the last candidates once their places are priced as well."""
    costs = options.costs(np.array(candidates))
    if at.whole_nodes:
        return candidates[int(np.argmin(costs))], None
    best: tuple[float, Ints, dict[str, Allocation]] | None = None
    for at_place in np.argsort(costs, kind="stable"):
        if best is not None and costs[at_place] >= best[0]:
            break
        choice = candidates[at_place]
        allocations = placed(view, at, options.units[choice], options.pool[choice])
        total = float(costs[at_place]) + placing_cost(at, options, choice, allocations)
        if best is None or total < best[0]:
            best = total, choice, allocations
    assert best is not None
    return best[1], best[2]
