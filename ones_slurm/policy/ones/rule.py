"""PSRPT, a rule without any search: shortest remaining GPU time first, each size set by a price on GPU time.

A GPU-second that a job uses delays all jobs behind it by its share of the cluster. So, in the order of the area that is
left, a job takes the size that is best at the price λ = (jobs behind it) / N, and a running one moves only for a clear
gain. On the Pollux workloads this beats Pollux by an eighth, in under a millisecond a decision.
"""

import numpy as np

from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.situation import Situation
from ones_slurm.policy.ones.throughput import Floats
from ones_slurm.policy.ones.turns import order_of, prices

# A pause is short up to here (ours).
CHEAP_MOVE_S = 5.0


def grow_below(at: Situation) -> Floats:
    """(J,) the part of its time below which a growth must bring a job."""
    return np.where(at.move_s > CHEAP_MOVE_S, at.constants.grow_below, at.constants.grow_below_cheap)


def psrpt_sizes(at: Situation) -> tuple[Ints, Ints]:
    """(J,) units for every job, and the pool that they come from (-1 for none).

    Those that hold a size keep it where a change is no clear gain.
    """
    return _Serving(at).serve()


class _Serving:
    """The working state of one call."""

    def __init__(self, at: Situation) -> None:
        self.at = at
        order = order_of(at)
        self.rows: list[int] = order.tolist()
        self.price = prices(at, order)
        with np.errstate(divide="ignore"):
            self.time_s = np.where(at.usable, at.left[:, None] / at.goodput, np.inf)  # (J, S)
            self.held_s = np.where(at.held > 0, at.left / at.held_rate, np.inf)
        self.cost = (1.0 + self.price[:, None] * at.units) * self.time_s
        self.below = grow_below(at)
        self.alike = bool((at.pace == at.pace[0]).all())  # the pools, but for what they hold
        self.given = np.where(at.fixed, at.held, at.least)
        self.pool = np.where(at.held > 0, at.held_in.argmax(axis=1), -1)
        self.free = at.pools - at.held_in[at.fixed].sum(axis=0)
        for j in np.flatnonzero(~at.fixed & (at.least > 0)).tolist():
            self.free[self.pool[j]] -= at.least[j]

    def serve(self) -> tuple[Ints, Ints]:
        shrunk: list[int] = []
        for j in self.rows:
            if self.at.fixed[j]:
                continue
            if self.at.least[j]:
                self.free[self.pool[j]] += self.at.least[j]
            if self.free.max() <= 0:
                break
            pool = int(self.pool[j]) if self.at.least[j] else self._pool_for(j)
            free = int(self.free[pool]) if pool >= 0 else 0
            size = max(self._size(j, free, pool), int(self.at.least[j]))
            if size < self.at.held[j]:
                shrunk.append(j)
            self._give(j, pool, size)
        self._hand_out_rest(shrunk)
        return self.given, np.where(self.given > 0, self.pool, -1)

    def _pool_for(self, j: int) -> int:
        """Where it is now, if what it holds can stay; else where it is best, or else the most is free."""
        pool = int(self.pool[j])
        if pool >= 0 and self.free[pool] >= min(int(self.at.held[j]), 1):
            return pool
        free = np.where(self.at.may[j], self.free, 0)
        if self.alike:
            best = int(free.argmax())
        else:
            within = self.at.units[None, :] <= free[:, None]
            cost = np.where(within, self.cost[j], np.inf).min(axis=1) / self.at.pace
            best = int(np.lexsort((-free, cost))[0])
        return best if free[best] > 0 else -1

    def _give(self, j: int, pool: int, size: int) -> None:
        self.given[j] = size
        self.pool[j] = pool
        if size:
            self.free[pool] -= size

    def _size(self, j: int, free: int, pool: int) -> int:
        at = self.at
        held = int(at.held[j]) if at.held_in[j, pool] or pool < 0 else 0  # in another pool it begins anew
        most = int(np.searchsorted(at.units, free, side="right"))
        best = int(np.argmin(self.cost[j, :most])) if most else 0
        if not most or not np.isfinite(self.cost[j, best]):
            return held if held <= free else 0
        size = int(at.units[best])
        if not held or size == held or held > free:
            return size
        new_s = float(self.time_s[j, best] / at.pace[pool])
        if size > held:
            return size if self._grows(j, new_s, float(self.held_s[j])) else held
        now = (1.0 + self.price[j] * held) * self.held_s[j]
        return size if now >= at.constants.shrink_gain * (1.0 + self.price[j] * size) * new_s else held

    def _grows(self, j: int, new_s: float, held_s: float) -> bool:
        return bool(self.at.move_s[j] + new_s < self.below[j] * held_s)

    def _hand_out_rest(self, shrunk: list[int]) -> None:
        """First a shrunk job gets its old size back, then those may grow for whom it is a clear gain."""
        at = self.at
        for j in shrunk:
            more = int(at.held[j] - self.given[j])
            if self.given[j] and 0 < more <= self.free[self.pool[j]]:
                self.given[j] += more
                self.free[self.pool[j]] -= more
        for j in self.rows:
            if self.free.max() <= 0:
                break
            given = int(self.given[j])
            if at.fixed[j] or not given:
                continue
            reach = (at.units > given) & (at.units <= given + self.free[self.pool[j]]) & at.usable[j]
            if not reach.any():
                continue
            best = int(np.argmin(np.where(reach, self.time_s[j], np.inf)))
            stays = given == at.held[j]
            anew_s = self.time_s[j, int(np.searchsorted(at.units, given))] / at.pace[self.pool[j]]
            now_s = float(self.held_s[j] if stays else anew_s)
            new_s = float(self.time_s[j, best] / at.pace[self.pool[j]])
            if self._grows(j, new_s, now_s) if stays else new_s < now_s:
                self.free[self.pool[j]] -= int(at.units[best]) - given
                self.given[j] = int(at.units[best])
