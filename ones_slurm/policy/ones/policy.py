"""ONES as we ship it: an evolutionary search over sizes and pools, seeded with the rule, the optimum and what is."""

import numpy as np

from ones_slurm.model.cluster import Allocation, ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.model.settings import Constants
from ones_slurm.policy.ones.constants import DEFAULTS
from ones_slurm.policy.ones.evolve import evolve
from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.plans import placed, plan_of
from ones_slurm.policy.ones.rule import psrpt_sizes
from ones_slurm.policy.ones.score import Options, options_of, placing_cost
from ones_slurm.policy.ones.situation import Situation, situation_of


class Ones:
    """No plan is worse, by `score`, than leaving all as it is, than the rule's and than the exact optimum of sizes.

    `history` lets a job profit from ended ones of the same user and recipe; without `search` only seeds are weighed.
    """

    name = "ones"

    def __init__(self, *, history: bool = True, search: bool = True, constants: Constants = DEFAULTS) -> None:
        self._history, self._search, self._constants = history, search, constants

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """Predict, weigh, search, place."""
        at = situation_of(view, history=self._history, constants=self._constants)
        if not at.jobs:
            return Plan()
        rule = psrpt_sizes(at)
        options = options_of(at, rule)
        seeds = [options.held, np.where(at.fixed, 0, options.choice(*rule))]
        best = evolve(options, seeds, rng, search=self._search)
        choice, allocations = _cheapest_placed(view, at, options, [*best, *seeds])
        sizes, pools = options.units[choice], options.pool[choice]
        return plan_of(view, at, sizes, pools, allocations)


def cost_of(view: ClusterView, plan: Plan, *, history: bool = True) -> float:
    """Any plan by the score of `Ones`, places included; infinite for one that it could not have made."""
    at = situation_of(view, history=history)
    options = options_of(at, psrpt_sizes(at))
    targets = {target.job_id: target for target in plan.targets}
    sizes, pools, allocations = np.where(at.fixed, 0, at.held), at.held_in.argmax(axis=1), {}
    for j, job in enumerate(at.jobs):
        target = targets.get(job.job_id)
        if target is None or at.fixed[j]:
            continue
        allocations[job.job_id] = target.allocation or ()
        names = [name for name, _ in allocations[job.job_id]]
        sizes[j] = sum(gpus for _, gpus in allocations[job.job_id]) if target.allocation is not None else target.nodes
        pools[j] = next((p for p, there in enumerate(at.nodes_of) if names and names[0] in there), 0)
    choice = options.choice(sizes, pools)
    if (options.units[choice] != sizes).any():
        return float("inf")
    return float(options.costs(choice[None])[0]) + placing_cost(at, options, choice, allocations)


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
        for clears in (True, False):  # small jobs make room for a large one, or it gets the gaps between them
            allocations = placed(view, at, options.units[choice], options.pool[choice], clears=clears)
            total = float(costs[at_place]) + placing_cost(at, options, choice, allocations)
            if best is None or total < best[0]:
                best = total, choice, allocations
            if total <= costs[at_place]:
                break
    assert best is not None
    return best[1], best[2]
