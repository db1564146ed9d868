"""Find the schedule: replay the presets, search the steady state, fill small cases in directly, return the best."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from ones_slurm.model.errors import Failed, UsageError
from ones_slurm.pipeline.bounds import makespan_bound_us, period_bound_us
from ones_slurm.pipeline.direct import direct
from ones_slurm.pipeline.grid import grid_of, in_units
from ones_slurm.pipeline.least_memory import check_memory
from ones_slurm.pipeline.period import Steady, sequence_of, shorten, steady_state, steady_state_of_several
from ones_slurm.pipeline.presets import presets
from ones_slurm.pipeline.replay import replay
from ones_slurm.pipeline.schedule import Orders, Schedule, orders_of
from ones_slurm.pipeline.solver import Clock
from ones_slurm.pipeline.spec import Placement
from ones_slurm.pipeline.verify import Verdict, verify

# Blocks x micro-batches up to which the direct model was seen to end or to improve within seconds.
DIRECT_OPS = 160
# More copies in one repetend were never better on 4 devices, and cost more time each.
MOST_COPIES = 6

Told = Callable[["Progress"], None]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search stands: what it does, the best makespan and its bound, the best period and its bound."""

    doing: str
    makespan_us: float
    makespan_bound_us: float
    period_us: float | None = None
    period_bound_us: float = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A validated schedule, and what is known about how good it is.

    `presets` has the makespan of each preset that runs, or None where it does not fit in memory. `period_us` is the
    time per micro-batch in the steady state that was found; `period_proven` that none of its kind is shorter.
    `period_bound_us` holds for its kind (`copies` micro-batches in a repetend). `stopped`: the budget or a person
    ended the search before it was through.
    """

    schedule: Schedule
    verdict: Verdict
    makespan_bound_us: float
    presets: dict[str, float | None]
    period_us: float | None
    period_bound_us: float
    period_proven: bool
    copies: int
    stopped: bool
    seconds: float

    @property
    def proven(self) -> bool:
        """No schedule of these micro-batches is shorter."""
        return self.verdict.makespan_us <= self.makespan_bound_us * (1 + 1e-9)

    @property
    def gap(self) -> float:
        """Share of the makespan that a better schedule could save at most."""
        return max(0.0, 1 - self.makespan_bound_us / self.verdict.makespan_us)


def search(
    placement: Placement,
    micro_batches: int,
    budget_s: float = 60,
    stop: threading.Event | None = None,
    told: Told = lambda _progress: None,
) -> Answer:
    """The best schedule that the budget gives; never worse than a preset that fits, and always validated.

    `stop` may be set at any time: the best answer so far is returned. Raises `TooLittleMemory` if nothing fits.
    """
    if micro_batches < 1:
        raise UsageError(f"{micro_batches} micro-batches", hint="at least 1")
    return _Search(placement, micro_batches, Clock(budget_s, stop), told).run()


class _Search:
    def __init__(self, placement: Placement, micro_batches: int, clock: Clock, told: Told) -> None:
        self.placement, self.micro_batches, self.clock, self.told = placement, micro_batches, clock, told
        self.budget_s = clock.left_s
        self.began_s = time.monotonic()
        self.bound_us = makespan_bound_us(placement, micro_batches)
        self.best: tuple[Schedule, Verdict] | None = None
        self.steady: Steady | None = None
        self.presets: dict[str, float | None] = {}

    def run(self) -> Answer:
        for schedule in presets(self.placement, self.micro_batches):
            verdict = self._offer(schedule)
            self.presets[schedule.source] = None if verdict.faults else verdict.makespan_us
        if self.best is None:
            check_memory(self.placement, Clock(max(self.clock.left_s, 10)))
            self._one_after_the_other()
        if not self._done:
            self._search_period()
        if not self._done and self._direct_pays:
            self._direct()
        return self._answer()

    @property
    def _done(self) -> bool:
        return self.best is not None and self.best[1].makespan_us <= self.bound_us * (1 + 1e-9)

    @property
    def _direct_pays(self) -> bool:
        return len(self.placement.blocks) * self.micro_batches <= DIRECT_OPS

    def _offer(self, schedule: Schedule) -> Verdict:
        """Replay, judge, and keep the schedule if it is valid and better: shorter, or as short with less memory."""
        verdict = verify(self.placement, self.micro_batches, replay(self.placement, schedule.orders))
        if not verdict.faults and (self.best is None or _worth(verdict) < _worth(self.best[1])):
            self.best = schedule, verdict
        return verdict

    def _search_period(self) -> None:
        """The steady state; several micro-batches in a repetend where memory binds; then short ends."""
        share = self.budget_s * (0.3 if self._direct_pays else 0.7)
        steady = steady_state(self.placement, self.clock.within(share), self._tell_period)
        if steady is None:
            return
        self._keep(steady)
        if steady.period_us > steady.bound_us * (1 + 1e-9):
            steady = self._several(steady, self.clock.within(share / 2))
        if not self._done:
            self._tell("shortening the ends")
            self._keep(shorten(steady, self.clock.within(0.2 * self.budget_s)))

    def _several(self, best: Steady, clock: Clock) -> Steady:
        for copies in range(2, min(MOST_COPIES, self.micro_batches // 2) + 1):
            self._tell(f"{copies} micro-batches in a repetend")
            better = steady_state_of_several(self.placement, best, copies, clock)
            if better is not None:
                best = better
                self._keep(best)
        return best

    def _keep(self, steady: Steady) -> None:
        self.steady = steady
        copies = steady.repetend.copies
        orders = orders_of(self.placement, sequence_of(steady, self.micro_batches))
        self._offer(self._schedule(orders, "repetend" if copies == 1 else f"repetend of {copies}"))

    def _direct(self) -> None:
        """All micro-batches at once, from the best so far on."""
        assert self.best is not None
        grid = grid_of(self.placement)
        known = replay(in_units(self.placement, grid), self.best[0].orders)
        self._tell("all micro-batches at once")
        found, bound, _ = direct(
            grid, self.micro_batches, self.clock, {op: round(start) for op, start in known.items()}, self._tell_direct
        )
        if grid.exact:
            self.bound_us = max(self.bound_us, bound * grid.unit_us)
        if found is not None:
            sequence = sorted(found.starts, key=lambda op: (found.starts[op], op[1], op[0]))
            self._offer(self._schedule(orders_of(self.placement, sequence), "direct"))

    def _one_after_the_other(self) -> None:
        """One micro-batch in an order that fits, repeated: a start where even that takes thought."""
        alone, _, _ = direct(grid_of(self.placement), 1, Clock(max(self.clock.left_s, 10)))
        if alone is None:
            raise Failed("no schedule was found in time", hint="a larger budget, or more memory")
        order = sorted(alone.starts, key=lambda op: (alone.starts[op], op[0]))
        sequence = [(i, n) for n in range(self.micro_batches) for i, _ in order]
        self._offer(self._schedule(orders_of(self.placement, sequence), "one after the other"))

    def _schedule(self, orders: Orders, source: str) -> Schedule:
        return Schedule(placement=self.placement, micro_batches=self.micro_batches, orders=orders, source=source)

    def _answer(self) -> Answer:
        assert self.best is not None
        schedule, verdict = self.best
        steady = self.steady
        single = steady is None or steady.repetend.copies == 1
        bound_us = period_bound_us(self.placement) if steady is None else steady.bound_us
        return Answer(
            schedule=schedule,
            verdict=verdict,
            makespan_bound_us=min(self.bound_us, verdict.makespan_us),
            presets=self.presets,
            period_us=None if steady is None else steady.period_us,
            period_bound_us=steady.single_bound_us if steady is not None and single else bound_us,
            period_proven=steady is not None and steady.proven,
            copies=1 if steady is None else steady.repetend.copies,
            stopped=self.clock.left_s <= 0,
            seconds=time.monotonic() - self.began_s,
        )

    def _tell(self, doing: str, period_us: float | None = None, period_bound_us: float = 0) -> None:
        assert self.best is not None
        self.told(
            Progress(
                doing=doing,
                makespan_us=self.best[1].makespan_us,
                makespan_bound_us=self.bound_us,
                period_us=period_us,
                period_bound_us=period_bound_us,
            )
        )

    def _tell_period(self, period_us: float, bound_us: float) -> None:
        self._tell("closing in on the period", period_us, bound_us)

    def _tell_direct(self, _makespan: float, _bound: float) -> None:
        self._tell("all micro-batches at once")


def _worth(verdict: Verdict) -> tuple[float, float]:
    return verdict.makespan_us, sum(verdict.peak_memory)
