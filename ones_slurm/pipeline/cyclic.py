"""The steady state: one repetend of every block, repeated every `period`, found by CP-SAT as a modulo schedule.

Block i of micro-batch n starts at s_i + n period, with s_i = period k_i + r_i. All k and r are free at once, so there
are no candidates to try and no limit on how far micro-batches overlap. Memory needs one boolean for each pair of
blocks on a device, whatever the time resolution: at phase r_i, block j has been started for every micro-batch up to
this period minus k_j, one fewer if r_j > r_i.

If a period is feasible, so is every longer one: stretch all starts by the same factor; phases keep their order, gaps
only grow, and with the order fixed the constraints are differences, which have whole solutions. So a refuted period
is a lower bound.
"""

from __future__ import annotations

import msgspec
from ortools.sat.python import cp_model

from ones_slurm.pipeline.grid import Grid
from ones_slurm.pipeline.solver import Clock, solve


class Repetend(msgspec.Struct, frozen=True, kw_only=True):
    """`starts[c][i]`: start of block i of copy c in units; repetition q holds micro-batches q u + c, `period` later.

    `copies` (u) micro-batches are in one repetend. `latency` is the time from the first start to the last end.
    """

    period: int
    copies: int
    starts: tuple[tuple[int, ...], ...]
    latency: int
    latency_bound: int


def repetend(
    grid: Grid,
    period: int,
    copies: int,
    clock: Clock,
    *,
    shortest: bool = False,
    doubtful: bool = False,
    hint: Repetend | None = None,
) -> tuple[Repetend | None, str]:
    """A repetend of this period and `optimal`, `feasible` (found), `infeasible` (there is none) or `unknown`.

    With `shortest` its latency is minimised, which keeps warm-up and cool-down short. `doubtful`: there is probably
    none, and that is to be proved.
    """
    model = _Model(grid, period, copies, doubtful=doubtful, shortest=shortest)
    if hint is not None:
        model.hint(hint)
    if shortest:
        model.minimise_latency(hint)
    solver, status = solve(model.cp, clock)
    if status not in ("optimal", "feasible"):
        return None, status
    return model.read(solver, shortest=shortest), status


def repetend_of(grid: Grid, period: int, starts: tuple[int, ...]) -> Repetend:
    """The repetend of one micro-batch that begins its blocks so."""
    latency = max(start + time for start, time in zip(starts, grid.times, strict=True))
    return Repetend(period=period, copies=1, starts=(starts,), latency=latency, latency_bound=_critical(grid))


class _Model:
    def __init__(self, grid: Grid, period: int, copies: int, *, doubtful: bool, shortest: bool) -> None:
        self.grid, self.period, self.copies = grid, period, copies
        self.cp = cp_model.CpModel()
        self.deepest = _deepest(grid, period, copies)
        cp, blocks = self.cp, range(len(grid.times))
        keys = [(c, i) for c in range(copies) for i in blocks]
        # Rotation: any one block may be at phase 0. The longest on most devices leaves the least to search.
        busy = [sum(i in here for here in grid.on) * grid.times[i] for i in blocks]
        self.anchor = (0, max(blocks, key=lambda i: (busy[i], -i)))
        self.phase = {key: cp.new_int_var(0, 0 if key == self.anchor else period - 1, "") for key in keys}
        # A part of the graph that nothing connects with the rest may move by whole periods. Its only source begins in
        # the first one, or for the shortest latency perhaps in the second, if another part begins late in the first.
        self.firsts = _firsts(grid)
        latest = {(0, source): int(shortest) for source in self.firsts.values()}
        self.turn = {key: cp.new_int_var(0, latest.get(key, self.deepest), "") for key in keys}
        self.start = {key: period * self.turn[key] + self.phase[key] for key in keys}
        for edge in grid.edges:
            for c in range(copies):
                cp.add(self.start[c, edge.consumer] >= self.start[c, edge.producer] + edge.delay)
        for i in blocks:
            for c in range(1, copies):
                cp.add(self.start[c, i] >= self.start[c - 1, i] + grid.times[i])
            if copies > 1:
                cp.add(self.start[0, i] + period >= self.start[copies - 1, i] + grid.times[i])
        self._keep_apart(doubtful=doubtful)
        if grid.capacity:
            self._limit_memory()

    def _keep_apart(self, *, doubtful: bool) -> None:
        """Blocks that share a device do not overlap, also not round the end of the period.

        An order for each pair says it all. Intervals, once more a period later, say it again: that finds repetends
        sooner (16 devices in two directions), and makes proofs that there is none about twice as long.
        """
        times = self.grid.times
        self.before: dict[tuple[tuple[int, int], tuple[int, int]], cp_model.LiteralT] = {}
        for here in {here for here in self.grid.on if len(here) * self.copies > 1}:
            keys = [(c, i) for c in range(self.copies) for i in here]
            if not doubtful:
                self.cp.add_no_overlap(
                    self.cp.new_fixed_size_interval_var(self.phase[key] + later, times[key[1]], "")
                    for later in (0, self.period)
                    for key in keys
                )
            for a in keys:
                for b in keys:
                    if a < b and (a, b) not in self.before:
                        self._order(a, b)

    def _order(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        """A boolean that says which of two blocks comes first in the period."""
        first = self.cp.new_bool_var("")
        self.before[a, b], self.before[b, a] = first, first.negated()
        # b comes after a, or a period later: between them is room for the first, and behind them for the second.
        gap = self.phase[b] - self.phase[a] - self.period * first
        self.cp.add_linear_constraint(gap, self.grid.times[a[1]] - self.period, -self.grid.times[b[1]])

    def _limit_memory(self) -> None:
        grid = self.grid
        for d, here in enumerate(grid.on):
            keys = [(c, i) for c in range(self.copies) for i in here if grid.memory[i]]
            for a in keys:
                if grid.memory[a[1]] > 0:
                    level = [grid.memory[b[1]] * self.before[b, a] for b in keys if b != a]
                    level += [-grid.memory[b[1]] * self.turn[b] for b in keys]
                    self.cp.add(sum(level) + grid.memory[a[1]] <= grid.capacity[d])
            # Implied, and what makes proofs short. Little's law: the mean level over a period is the memory times
            # the time it is held, and while a release runs, what it gave back is not taken again.
            held = sum(-grid.memory[i] * self.start[c, i] for c, i in keys)
            released = sum(-grid.memory[i] * grid.times[i] for i in here if grid.memory[i] < 0)
            self.cp.add(held + self.copies * released <= grid.capacity[d] * self.period)
            if len(keys) == 2 * self.copies:
                take, give = sorted((i for c, i in keys if c == 0), key=lambda i: -grid.memory[i])
                self._first_in_first_out(take, give, d)

    def _first_in_first_out(self, take: int, give: int, d: int) -> None:
        """Where a micro-batch has one forward here: the one that comes `ahead` later starts when this one is gone."""
        ahead = self.grid.capacity[d] // self.grid.memory[take]
        for c in range(self.copies):
            later, copy = divmod(c + ahead, self.copies)
            self.cp.add(self.start[c, give] + self.grid.times[give] <= self.start[copy, take] + later * self.period)

    def minimise_latency(self, hint: Repetend | None) -> None:
        """From the first start to the last end. Copy c is later by its share of the period, which is no latency."""
        longest = hint.latency if hint else (self.deepest + 1) * self.period + max(self.grid.times)
        latency = self.cp.new_int_var(_critical(self.grid), longest, "")
        origin = self.cp.new_int_var(0, (self.deepest + 1) * self.period, "")
        sources = set(range(len(self.grid.times))) - {edge.consumer for edge in self.grid.edges}
        for (c, i), start in self.start.items():
            if i in sources:
                self.cp.add(origin <= start)
            self.cp.add((latency + origin - start - self.grid.times[i]) * self.copies >= -c * self.period)
        self.cp.minimize(latency)

    def hint(self, known: Repetend) -> None:
        """Where a known repetend has its blocks, moved to where this model looks for them."""
        c, i = self.anchor
        rotation = -known.starts[c][i] % self.period
        turns = {block: (known.starts[0][first] + rotation) // self.period for block, first in self.firsts.items()}
        for (c, i), phase in self.phase.items():
            start = known.starts[c][i] + rotation
            self.cp.add_hint(phase, start % self.period)
            self.cp.add_hint(self.turn[c, i], start // self.period - turns.get(i, 0))

    def read(self, solver: cp_model.CpSolver, *, shortest: bool) -> Repetend:
        values = {key: solver.value(start) for key, start in self.start.items()}
        first = min(values.values())
        blocks = range(len(self.grid.times))
        starts = tuple(tuple(values[c, i] - first for i in blocks) for c in range(self.copies))
        late = max(
            (start + self.grid.times[i]) * self.copies - c * self.period
            for c, copy in enumerate(starts)
            for i, start in enumerate(copy)
        )
        bound = round(solver.best_objective_bound) if shortest else _critical(self.grid)
        return Repetend(
            period=self.period,
            copies=self.copies,
            starts=starts,
            latency=-(-late // self.copies),
            latency_bound=bound,
        )


def _deepest(grid: Grid, period: int, copies: int) -> int:
    """Periods that one micro-batch need ever span.

    If all dependencies from one set of blocks to the rest have a whole period to spare, the rest can move one period
    earlier, which only frees memory (what a block gives back is downstream of what it took). So some dependency
    between any two neighbouring turns is tight, and each is at most its delay long.
    """
    step = max((edge.delay + period - 1) // period for edge in grid.edges) if grid.edges else 1
    ahead = sum(sorted(((e.delay + period - 1) // period for e in grid.edges), reverse=True)[: len(grid.times) - 1])
    return min(len(grid.times) * step, ahead) + copies


def _firsts(grid: Grid) -> dict[int, int]:
    """For each block of a connected part that has one source and leaves no memory behind: that source."""
    part = list(range(len(grid.times)))
    for edge in grid.edges:
        old, new = part[edge.consumer], part[edge.producer]
        part = [new if at == old else at for at in part]
    consumers = {edge.consumer for edge in grid.edges}
    found = {}
    for name in set(part):
        members = [i for i, at in enumerate(part) if at == name]
        sources = [i for i in members if i not in consumers]
        balanced = all(sum(grid.memory[i] for i in here if part[i] == name) == 0 for here in grid.on)
        if len(sources) == 1 and balanced:
            found.update(dict.fromkeys(members, sources[0]))
    return found


def _critical(grid: Grid) -> int:
    begins = [0] * len(grid.times)
    for edge in sorted(grid.edges, key=lambda edge: edge.consumer):
        begins[edge.consumer] = max(begins[edge.consumer], begins[edge.producer] + edge.delay)
    return max(begin + time for begin, time in zip(begins, grid.times, strict=True))
