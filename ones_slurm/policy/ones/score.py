"""What makes one plan better than another: a cost for every job at every size in every pool, in shares of its own time.

    cost of job j at n units = weight · (1 + λ n) · (time left at n + pause if it moves) · inertia / its best such time

The price λ is the rule's. `weight` falls with the place in the order of service, for who is served late is planned
again many times before. Waiting counts as twice the best. All this is a sum over jobs; the jobs are coupled by what the
pools hold, and by the places, which are priced on the plans that are left in the end (`placing_cost`).
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from ones_slurm.model.cluster import Allocation
from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.rule import grow_below
from ones_slurm.policy.ones.situation import Situation
from ones_slurm.policy.ones.throughput import Floats
from ones_slurm.policy.ones.turns import importance, order_of, overdue, prices

# Waiting costs as much as running twice as long as at best (ours: the order of what a turn later costs).
WAITING = 2.0
# A node more than needed costs a job so much of its time (ours: profiles show 10 to 50 % between one node and two).
SPLIT = 0.2
# A job that would fit on one node and is spread over several takes about twice as long on the measured applications.
TORN = 1.0
# One switch more on its way, so much (ours: links between racks are commonly shared by some four times as many).
CROSSED = 0.1


@dataclasses.dataclass(frozen=True)
class Options:
    """What each job may get. Option 0 is waiting, or staying for who may not be moved; the others are a size in a pool.

    `cost` (J, O) is infinite where an option is not allowed. `held` (J,) is the option in force, waiting where the job
    holds nothing; `order` is that of service.
    """

    cost: Floats
    units: Ints  # (O,)
    pool: Ints  # (O,) -1 for waiting
    pools: Ints  # (P,) units to give
    held: Ints  # (J,)
    order: Ints  # (J,)

    def used(self, choice: Ints) -> Ints:
        """(K, P) units of each pool that candidates (K, J) take."""
        units, pool = self.units[choice], self.pool[choice]
        return np.stack([np.where(pool == p, units, 0).sum(axis=1) for p in range(len(self.pools))], axis=1)

    def costs(self, choice: Ints) -> Floats:
        """(K,) the total cost of candidates (K, J); infinite where a pool is overdrawn."""
        total = self.cost[np.arange(choice.shape[1])[None, :], choice].sum(axis=1)
        return np.where((self.used(choice) <= self.pools).all(axis=1), total, np.inf)

    def choice(self, sizes: Ints, pools: Ints) -> Ints:
        """(J,) options for sizes in pools; waiting where there is no such option."""
        per_pool = (len(self.units) - 1) // max(len(self.pools), 1)
        option = 1 + pools * per_pool + np.searchsorted(self.units[1 : 1 + per_pool], sizes)
        option = np.where((sizes > 0) & (pools >= 0), np.minimum(option, len(self.units) - 1), 0)
        return np.where(self.units[option] == np.maximum(sizes, 0), option, 0)


def options_of(at: Situation, anchor: tuple[Ints, Ints] | None = None) -> Options:
    """The costs of a situation; `anchor` is the rule's answer (sizes, pools), to depart from which must pay."""
    jobs, sizes, pools = len(at.jobs), len(at.units), len(at.pools)
    order = order_of(at)
    price = prices(at, order)
    with np.errstate(divide="ignore", invalid="ignore"):
        time_s = np.where(at.usable, at.left[:, None] / at.goodput, np.inf)
        held_s = np.where(at.held > 0, at.left / at.held_rate, np.inf)
    priced = 1.0 + price[:, None] * at.units  # (J, S)
    runs = at.held > 0
    smaller = runs[:, None] & (at.units < at.held[:, None])
    pause = np.where(smaller, at.shrink_s[:, None], at.move_s[:, None])
    inertia = np.where(at.units > at.held[:, None], 1.0 / grow_below(at)[:, None], at.constants.shrink_gain)
    stays = runs[:, None] & (at.units == at.held[:, None])
    stay_cost = (1.0 + price * at.held) * held_s
    fastest = np.where(at.may, at.pace, 0.0).max(axis=1, initial=0.0)  # of the pools that it may be in
    with np.errstate(divide="ignore"):
        anew = priced * (time_s / np.where(fastest > 0.0, fastest, 1.0)[:, None] + pause)
    best = np.minimum(anew.min(axis=1, initial=np.inf), np.where(runs, stay_cost, np.inf))
    best = np.where(np.isfinite(best) & (best > 0.0), best, 1.0)
    home = np.where(runs, at.held_in.argmax(axis=1), -1) if pools else np.full(jobs, -1)
    ratio = np.where(runs, stay_cost / best, 1.0)
    columns = [WAITING * np.maximum(ratio, 1.0)[:, None]]  # no job looks better stopped than on the size that it has
    for pool in range(pools):
        at_home = stays & (home == pool)[:, None]
        away = stays & ~at_home  # the same size in another pool is a move like any other
        moved = priced * (time_s / at.pace[pool] + pause)
        at_size = np.where(runs[:, None], moved * inertia, moved)
        here = (
            np.where(at_home, stay_cost[:, None], np.where(away, moved * at.constants.shrink_gain, at_size))
            / best[:, None]
        )
        columns.append(np.where(at.may[:, pool, None], here, np.inf))
    options = Options(
        cost=np.concatenate(columns, axis=1) * importance(at)[:, None],
        units=np.concatenate([[0], np.tile(at.units, pools)]).astype(int),
        pool=np.concatenate([[-1], np.repeat(np.arange(pools), sizes)]).astype(int),
        pools=np.maximum(at.pools - at.held_in[at.fixed].sum(axis=0), 0),
        held=np.full(jobs, -1),
        order=order,
    )
    held = np.where(runs & ~at.fixed, options.choice(at.held, home), 0)
    every = np.arange(jobs)
    cost = options.cost.copy()
    if anchor is not None:
        chosen = np.where(at.fixed, 0, options.choice(*anchor))
        kept = cost[every, chosen]
        depart = np.where(np.isfinite(kept), kept, 0.0) * at.constants.departure
        cost += depart[:, None]
        cost[every, chosen] = kept
        cost[overdue(at) & (chosen > 0), 0] = np.inf
    cost[at.least > 0, 0] = np.inf
    cost[at.fixed] = np.inf  # who cannot be moved now has one option, and what it holds is no longer in the pools
    cost[at.fixed, 0] = 0.0
    return dataclasses.replace(options, cost=cost, held=held)


def placing_cost(at: Situation, options: Options, choice: Ints, allocations: Mapping[str, Allocation]) -> float:
    """What the places add: pauses of jobs that keep their size and must change GPUs, needless nodes, racks."""
    total = 0.0
    every = zip(at.jobs, choice.tolist(), strict=True)
    for j, (job, option) in enumerate(every):
        allocation = allocations.get(job.job_id, job.allocation)
        if not option or at.fixed[j]:
            continue
        share = options.cost[j, option]
        if option == options.held[j] and allocation != job.allocation:
            total += share * (at.constants.shrink_gain - 1.0 + at.move_s[j] * at.held_rate[j] / max(at.left[j], 1e-9))
        needed = -(-int(options.units[option]) // at.per_node)
        racks = {at.racks[name] for name, _ in allocation}
        more = max(len(allocation) - needed, 0)
        torn = TORN if more and needed == 1 else 0.0
        total += share * (SPLIT * more + torn + CROSSED * max(len(racks) - 1, 0))
    return total
