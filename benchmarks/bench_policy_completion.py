"""Average completion time on the Pollux workloads against Pollux as published, at other loads, and what it hangs on.

`ONES_DATA` names the folder that holds `pollux/`; without it nothing is measured. Some 5 minutes of one core.
"""

import os
from pathlib import Path
from typing import Any

from ones_slurm.model.settings import Costs

# Seconds of w1 to w4 at load 1.0 (petuum/adaptdl, osdi21-artifact), and the 99th percentile over eight workloads.
POLLUX, POLLUX_P99 = (2089, 3323, 2188, 2721), 46026
GOALS = {("ones", 30.0): 0.85, ("ones", 1.0): 0.79, ("psrpt", 30.0): 0.88, ("psrpt", 1.0): 0.83}
LOADS = ("0.5", "1.5", "2.0")
PAUSES, INTERVALS = (5.0, 10.0, 60.0), (30.0, 120.0, 300.0)


def run() -> list[dict[str, Any]]:
    """Ratios of means: lower is better, and below 1.5 % all is noise."""
    data = os.environ.get("ONES_DATA")
    if data is None:
        return [_row("completion time on the Pollux workloads", 0.0, "", None, "ONES_DATA not given: skipped")]
    folder = Path(data) / "pollux"
    rows = [_ratio(folder, name, start_s=pause, goal=goal) for (name, pause), goal in GOALS.items()]
    for load in LOADS:
        for pause in (30.0, 1.0):
            ones, rule = (_run(folder, f"load-{load}-w1", name, pause, 60.0).mean_s for name in ("ones", "psrpt"))
            name = f"load {load}, {pause:g} s a move: ones over psrpt"
            rows.append(_row(name, ones / rule, "ratio", 1.01, f"{ones:.0f} s over {rule:.0f} s, w1 alone"))
    rows += [_ratio(folder, "ones", start_s=pause) for pause in PAUSES]
    rows += [_ratio(folder, "ones", interval_s=interval) for interval in INTERVALS]
    return rows


def _ratio(
    folder: Path, policy: str, *, start_s: float = 30.0, interval_s: float = 60.0, goal: float | None = None
) -> dict[str, Any]:
    found = [_run(folder, f"load-1.0-w{number}", policy, start_s, interval_s) for number in range(1, 5)]
    each = ", ".join(f"{one.mean_s / there:.3f}" for one, there in zip(found, POLLUX, strict=True))
    moves = sum(one.moves for one in found) / len(found)
    p99 = sum(one.p99_s for one in found) / len(found)
    return _row(
        f"{policy}: {start_s:g} s a move, every {interval_s:g} s, over Pollux",
        sum(one.mean_s for one in found) / sum(POLLUX),
        "ratio",
        goal,
        f"w1..w4 {each}; {moves:.1f} moves a job; p99 {p99 / POLLUX_P99:.2f} of Pollux's",
    )


def _run(folder: Path, trace: str, policy: str, start_s: float, interval_s: float) -> Any:
    from ones_slurm.sim.trace import read_trace
    from ones_slurm.study.setting import Setting, simulate

    costs = Costs(start_s=start_s, save_s=0.0, rebatch_s=0.0)
    setting = Setting(profiles=folder / "profiles", costs=costs, interval_s=interval_s)
    return simulate(read_trace(folder / "workloads" / f"{trace}.csv"), policy, setting).figures


def _row(name: str, value: float, unit: str, goal: float | None, note: str) -> dict[str, Any]:
    return {"name": name, "value": round(value, 4), "unit": unit, "goal": goal, "better": "lower", "note": note}
