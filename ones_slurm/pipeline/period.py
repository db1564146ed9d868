"""The shortest period: bounded from below by proofs, from above by repetends, under a budget."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import msgspec
import numpy as np

from ones_slurm.pipeline.bounds import period_bound_us
from ones_slurm.pipeline.cyclic import Repetend, repetend, repetend_of
from ones_slurm.pipeline.grid import Grid, grid_of
from ones_slurm.pipeline.schedule import Op
from ones_slurm.pipeline.solver import Clock
from ones_slurm.pipeline.spec import Placement
from ones_slurm.pipeline.sweep import strands_of, sweep

# A period that is decided is decided quickly or slowly, with little between; ours, because the anchors with 4 to 8
# devices that are easy all take less than this.
EASY_S = 2.0
# Periods that differ by less are the same to everybody who has to run them.
RELATIVE_RESOLUTION = 1e-3


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """`period_us` per micro-batch, and the bounds below it.

    `bound_us` holds for every steady state, `single_bound_us` for those with one micro-batch in a repetend.
    """

    repetend: Repetend
    grid: Grid
    period_us: float
    bound_us: float
    single_bound_us: float

    @property
    def proven(self) -> bool:
        """No steady state of any kind is faster, or none with as many micro-batches in a repetend."""
        bound_us = self.single_bound_us if self.repetend.copies == 1 else self.bound_us
        return self.period_us <= bound_us * (1 + 1e-9)

    @property
    def gap(self) -> float:
        """Share by which a steady state of the same kind could be faster at most."""
        bound_us = self.single_bound_us if self.repetend.copies == 1 else self.bound_us
        return max(0.0, 1 - bound_us / self.period_us)


def steady_state(
    placement: Placement, clock: Clock, told: Callable[[float, float], None] = lambda _period_us, _bound_us: None
) -> Steady | None:
    """The best repetend of one micro-batch that is found within the budget; `told` hears of each better answer."""
    grid = grid_of(placement)
    bound_us = period_bound_us(placement)
    low = max(grid.work, ceil(bound_us / grid.unit_us * (1 - 1e-9)))
    serial = sum(grid.times) + sum(edge.delay for edge in grid.edges)
    between = _Between(grid, low, serial, clock, told=told)
    best = between.search()
    if best is None:
        return None
    if grid.exact:
        period_us, single_us = best.period * grid.unit_us, between.low * grid.unit_us
    else:
        period_us = exact_period_us(placement, best)
        single_us = _refuted_us(placement, period_us, bound_us, clock)
    single_us = min(max(single_us, bound_us), period_us)
    return Steady(repetend=best, grid=grid, period_us=period_us, bound_us=bound_us, single_bound_us=single_us)


def steady_state_of_several(placement: Placement, known: Steady, copies: int, clock: Clock) -> Steady | None:
    """A repetend of several micro-batches that takes less time for each than a known one, if one is found."""
    grid = known.grid
    low = max(copies * grid.work, ceil(copies * known.bound_us / grid.unit_us * (1 - 1e-9)))
    high = ceil(copies * known.period_us / grid.unit_us * (1 - 1e-9)) - 1
    best = _Between(grid, low, high, clock, copies=copies).search()
    if best is None:
        return None
    period_us = best.period * grid.unit_us / copies if grid.exact else exact_period_us(placement, best)
    return msgspec.structs.replace(known, repetend=best, period_us=period_us)


def shorten(steady: Steady, clock: Clock) -> Steady:
    """The same period with the least time from the first start to the last end that the budget gives."""
    best, _ = repetend(
        steady.grid, steady.repetend.period, steady.repetend.copies, clock, shortest=True, hint=steady.repetend
    )
    return steady if best is None else msgspec.structs.replace(steady, repetend=best)


def sequence_of(steady: Steady, micro_batches: int) -> list[Op]:
    """All blocks of all micro-batches in the order of the repetend's start times."""
    rep = steady.repetend
    begins = {
        (i, n): start + n // rep.copies * rep.period
        for n in range(micro_batches)
        for i, start in enumerate(rep.starts[n % rep.copies])
    }
    return sorted(begins, key=lambda op: (begins[op], op[1], op[0]))


class _Between:
    """Close in on the shortest period from both sides. `low` is the smallest that is not refuted."""

    def __init__(
        self,
        grid: Grid,
        low: int,
        high: int,
        clock: Clock,
        *,
        told: Callable[[float, float], None] = lambda _period_us, _bound_us: None,
        copies: int = 1,
    ) -> None:
        self.grid, self.low, self.high, self.clock, self.told, self.copies = grid, low, high, clock, told, copies
        self.best: Repetend | None = None
        self.strands = strands_of(grid) if copies == 1 else None

    def search(self) -> Repetend | None:
        self._climb()
        if self.best is not None:
            self._halve()
            self._finish()
        return self.best

    def _try(self, period: int, seconds: float, *, doubtful: bool = False) -> bool:
        found, status = self._swept(period)
        if status == "unknown":
            clock = self.clock.within(seconds)
            found, status = repetend(self.grid, period, self.copies, clock, doubtful=doubtful, hint=self.best)
        if found is not None:
            self.best, self.high = found, period
        elif status == "infeasible":
            self.low = max(self.low, period + 1)
        self.told(self.high * self.grid.unit_us / self.copies, self.low * self.grid.unit_us / self.copies)
        return found is not None

    def _swept(self, period: int) -> tuple[Repetend | None, str]:
        """Two directions over a line of devices are decided without a solver."""
        if self.strands is None:
            return None, "unknown"
        starts, decided = sweep(self.grid, self.strands, period)
        if starts is None:
            return None, "infeasible" if decided else "unknown"
        return repetend_of(self.grid, period, starts), "feasible"

    def _climb(self) -> None:
        """From the bound upwards in growing strides until something is feasible; the bound itself often is."""
        period, stride = self.low, 1
        while period <= self.high and self.clock.left_s > 0 and not self._try(period, EASY_S * stride):
            period = self.high + 1 if period == self.high else min(self.high, period + stride)
            stride *= 2

    def _halve(self) -> None:
        """Halve what lies between refuted and found, quickly; what takes long counts as refuted for now."""
        doubtful = self.low
        while doubtful < self.high - self._fine and self.clock.left_s > 0:
            middle = (doubtful + self.high) // 2
            doubtful = doubtful if self._try(middle, EASY_S) else middle + 1
            doubtful = max(doubtful, self.low)

    def _finish(self) -> None:
        """Spend what is left on the next shorter period: a plan, or the proof that there is none."""
        while self.low < self.high and self.high - self.low >= self._fine and self.clock.left_s > 0:
            low = self.low
            found = self._try(self.high - max(1, self._fine), self.clock.left_s, doubtful=True)
            if not found and self.low == low:
                return

    @property
    def _fine(self) -> int:
        return int(self.high * RELATIVE_RESOLUTION)


def _refuted_us(placement: Placement, period_us: float, bound_us: float, clock: Clock) -> float:
    """A bound where times were rounded up: with times rounded down, what is refuted is refuted for the real ones."""
    grid = grid_of(placement, down=True)
    for share in (1 - RELATIVE_RESOLUTION, 0.99, 0.97):
        period = int(period_us * share / grid.unit_us)
        if period * grid.unit_us <= bound_us or clock.left_s <= 0:
            break
        if period < grid.work or repetend(grid, period, 1, clock, doubtful=True)[1] == "infeasible":
            return period * grid.unit_us
    return bound_us


def exact_period_us(placement: Placement, found: Repetend) -> float:
    """The least period that this order of blocks can keep with the exact times, by halving.

    A period works if the differences between starts that it demands contain no circle that gains time.
    """
    blocks, copies, period = placement.blocks, found.copies, found.period
    keys = [(c, i) for c in range(copies) for i in range(len(blocks))]
    number = {key: at for at, key in enumerate(keys)}
    turn = {(c, i): found.starts[c][i] // period for c, i in keys}
    phase = {(c, i): found.starts[c][i] % period for c, i in keys}
    demands = [
        (number[c, i], number[c, j], blocks[i].time_us + placement.transfer_between_us(i, j), 0)
        for i, j in placement.edges
        for c in range(copies)
    ]
    for d in range(placement.devices):
        here = sorted(((c, i) for c in range(copies) for i in placement.on(d)), key=lambda key: phase[key])
        for a, b in zip(here, here[1:] + here[:1], strict=True):
            wrap = int(b == here[0])
            demands.append((number[a], number[b], blocks[a[1]].time_us, wrap + turn[a] - turn[b]))
    source, target, delay, lag = (np.array(column) for column in zip(*demands, strict=True))

    def works(period_us: float) -> bool:
        starts = np.zeros(len(keys))
        for _ in keys:
            later = starts.copy()
            np.maximum.at(later, target, starts[source] + delay - lag * period_us)
            if np.allclose(later, starts, rtol=0, atol=1e-9 * period_us):
                return True
            starts = later
        return False

    low, high = copies * max(placement.work_us), period * grid_of(placement).unit_us
    if works(low):
        return low / copies
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high / copies
