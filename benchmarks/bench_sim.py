"""The simulator against published figures, and what it costs.

The reference data is not ours to carry: `ONES_DATA` names the folder that holds `pollux/`, `elasticflow/` and `philly/`
(see `docs/simulator.md`). Without it only what needs no data is measured.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Average completion time in seconds of w1 to w4 at load 1.0, in the simulator of petuum/adaptdl (osdi21-artifact).
REFERENCE = {
    "strict-fifo": (9212, 43573, 5093, 29137),
    "first-fit": (5021, 10758, 4039, 9648),
    "tiresias": (2474, 5145, 3876, 3280),
    "easy": (4867, 14449, 3916, 15329),
    "srtf": (2426, 3768, 3181, 3144),
    "pollux": (2089, 3323, 2188, 2721),
}
# How far each may be off: the largest deviation of a workload, for Pollux that of the mean.
WITHIN = {"strict-fifo": 3.0, "first-fit": 3.0, "tiresias": 3.0, "pollux": 5.0}


def run() -> list[dict[str, Any]]:
    """All figures that the data at hand allows."""
    data = os.environ.get("ONES_DATA")
    rows = [*_apart("10,000 GPUs, 5,000 jobs, EASY", _scale, "", None, None)]
    if data is None:
        return [*rows, _row("fidelity and speed on published traces", 0, "", None, "ONES_DATA not given: skipped")]
    rows += [_fidelity(Path(data), policy) for policy in REFERENCE]
    rows += _apart("w1 with Tiresias", _w1, data, 2.0, None)
    rows += _apart("ElasticFlow cluster02 with EASY", _cluster02, data, 20.0, None)
    rows += _apart("Philly with EASY", _philly, data, 300.0, 2048.0)
    return rows


def _fidelity(data: Path, policy: str) -> dict[str, Any]:
    from ones_slurm.sim.trace import read_trace
    from ones_slurm.study.setting import Setting, simulate

    setting = Setting(profiles=data / "pollux" / "profiles")
    means = []
    for number in range(1, 5):
        trace = read_trace(data / "pollux" / "workloads" / f"load-1.0-w{number}.csv")
        means.append(simulate(trace, policy, setting).figures.mean_s)
    off = [100 * (mean / there - 1) for mean, there in zip(means, REFERENCE[policy], strict=True)]
    of_mean = 100 * (sum(means) / sum(REFERENCE[policy]) - 1)
    worst = abs(of_mean) if policy == "pollux" else max(abs(each) for each in off)
    note = f"w1..w4 {', '.join(f'{each:+.2f}' for each in off)} %; mean {of_mean:+.2f} %"
    return _row(f"fidelity: {policy}", round(worst, 3), "% off", WITHIN.get(policy), note)


def _w1(data: str) -> tuple[int, float]:
    from ones_slurm.study.setting import Setting

    return _timed(
        Path(data) / "pollux/workloads/load-1.0-w1.csv", "tiresias", Setting(profiles=Path(data) / "pollux/profiles")
    )


def _cluster02(data: str) -> tuple[int, float]:
    from ones_slurm.study.setting import Setting

    return _timed(Path(data) / "elasticflow/cluster02.csv", "easy", Setting(nodes=32, gpus_per_node=4, by_clock=False))


def _philly(data: str) -> tuple[int, float]:
    from ones_slurm.study.setting import Setting

    return _timed(Path(data) / "philly/philly.csv", "easy", Setting(nodes=300, gpus_per_node=8))


def _scale(_: str) -> tuple[int, float]:
    from ones_slurm.sim.synth import synthesise
    from ones_slurm.study.setting import Setting, simulate

    begun = time.process_time()
    trace = synthesise(5000, hours=24, mix={"traced": 1.0}, seed=1)
    result = simulate(trace, "easy", Setting(nodes=1250, gpus_per_node=8, by_clock=False))
    return result.figures.decisions, time.process_time() - begun


def _timed(path: Path, policy: str, setting: Any) -> tuple[int, float]:
    from ones_slurm.sim.trace import read_trace
    from ones_slurm.study.setting import simulate

    begun = time.process_time()
    result = simulate(read_trace(path), policy, setting)
    return result.figures.decisions, time.process_time() - begun


def _apart(
    name: str, work: Callable[[str], tuple[int, float]], data: str, goal_s: float | None, goal_mib: float | None
) -> list[dict[str, Any]]:
    """In a process of its own, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        decisions, cpu_s, mib = pool.submit(_with_memory, work, data).result()
    return [
        _row(name, round(cpu_s, 2), "s CPU", goal_s, f"{decisions} decisions, reading included"),
        _row(f"{name}: memory", mib, "MiB", goal_mib, "largest resident size"),
    ]


def _with_memory(work: Callable[[str], tuple[int, float]], data: str) -> tuple[int, float, int]:
    decisions, cpu_s = work(data)
    # not getrusage: its largest resident size is inherited from the process that started this one
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return decisions, cpu_s, int(status["VmHWM"].split()[0]) // 1024


def _row(name: str, value: float, unit: str, goal: float | None, note: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "better": "lower", "note": note}
