"""Run CP-SAT so that it can be stopped: by time, by Ctrl-C, by anybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ortools.sat.python import cp_model

SEED = 1


class Clock:
    """The budget of a search: `left_s` until it ends, `stopped` once somebody asked for the answer so far."""

    def __init__(self, budget_s: float, stop: threading.Event | None = None) -> None:
        self._end_s = time.monotonic() + budget_s
        self._stop = stop or threading.Event()

    @property
    def left_s(self) -> float:
        return 0.0 if self._stop.is_set() else max(0.0, self._end_s - time.monotonic())

    def within(self, seconds: float) -> Clock:
        """A part of this budget, under the same stop."""
        return Clock(min(seconds, self.left_s), self._stop)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()


def solve(
    model: cp_model.CpModel, clock: Clock, on_solution: Callable[[float, float], None] | None = None
) -> tuple[cp_model.CpSolver, str]:
    """Solve on one thread within the budget; the status is `optimal`, `feasible`, `infeasible` or `unknown`.

    One worker was as fast as several on these models, and repeats exactly.
    """
    solver = cp_model.CpSolver()
    if clock.left_s <= 0:
        return solver, "unknown"
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = SEED
    solver.parameters.max_time_in_seconds = clock.left_s
    solver.parameters.catch_sigint_signal = False
    callback = _Watch(on_solution) if on_solution else None
    outcome: list[cp_model.CpSolverStatus] = []
    thread = threading.Thread(target=lambda: outcome.append(solver.solve(model, callback)), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        if clock.stopped:
            solver.stop_search()
    name = outcome[0].name.lower()
    return solver, name if name in ("optimal", "feasible", "infeasible") else "unknown"


class _Watch(cp_model.CpSolverSolutionCallback):
    def __init__(self, told: Callable[[float, float], None]) -> None:
        super().__init__()
        self._told = told

    def on_solution_callback(self) -> None:
        self._told(self.objective_value, self.best_objective_bound)
