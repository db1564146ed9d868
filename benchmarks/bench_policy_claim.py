"""The claim of the ONES paper on its own workload classes: 64 GPUs, 50 jobs, 20 seeds, paired one-sided Wilcoxon tests.

Peers run at the sizes that users ask for, twice: with the base batch as the whole batch, whatever the size, and as
careful users run them, with the base batch on each GPU. Which of the two the authors compared with is not published.
`tiresias` sinks a job after a quarter of a GPU-hour here, for these jobs take minutes. Some 5 minutes of one core.
"""

from typing import Any

import msgspec
import numpy as np
from scipy.stats import wilcoxon

from ones_slurm.model.settings import Costs
from ones_slurm.policy.peers.tiresias import Tiresias
from ones_slurm.policy.registry import PEERS
from ones_slurm.sim.recipes import RECIPES
from ones_slurm.sim.synth import synthesise
from ones_slurm.sim.trace import Row
from ones_slurm.study.setting import Setting, simulate

SEEDS = 20
JOBS, GAP_S = 50, 30.0
SETTING = Setting(interval_s=10.0, costs=Costs(start_s=5.0, save_s=0.0, rebatch_s=0.0))
THRESHOLD_GPU_S = 900.0
# What the authors' own results say, computed from their files: so much shorter than Tiresias and Optimus.
PUBLISHED = {"tiresias": 57.4, "optimus": 52.8}


def run() -> list[dict[str, Any]]:
    """By how much completion times are shorter, on average over seeds."""
    tuned: dict[str, list[float]] = {name: [] for name in ("ones", "ones-paper", *PUBLISHED)}
    plain: dict[str, list[float]] = {"tiresias": []}
    PEERS["tiresias"] = lambda: Tiresias(THRESHOLD_GPU_S)
    try:
        for seed in range(SEEDS):
            rows = synthesise(
                JOBS, hours=JOBS * GAP_S / 3600.0, mix=dict.fromkeys(RECIPES, 1.0), arrivals="uniform", seed=seed
            )
            for name, times in tuned.items():
                times.append(simulate(rows, name, SETTING).figures.mean_s)
            plain["tiresias"].append(simulate(_plain(rows), "tiresias", SETTING).figures.mean_s)
    finally:
        PEERS["tiresias"] = Tiresias
    result = []
    for mine in ("ones-paper", "ones"):
        result += [_row(mine, peer, "careful users", tuned[mine], tuned[peer]) for peer in PUBLISHED]
        result.append(_row(mine, "tiresias", "one base batch in all", tuned[mine], plain["tiresias"]))
    return result


def _plain(rows: list[Row]) -> list[Row]:
    return [msgspec.structs.replace(row, batch=RECIPES[row.application].base_batch) for row in rows]


def _row(mine: str, peer: str, how: str, my_s: list[float], peer_s: list[float]) -> dict[str, Any]:
    shorter = 100.0 * (1.0 - np.array(my_s) / np.array(peer_s))
    chance = float(wilcoxon(my_s, peer_s, alternative="less").pvalue)
    return {
        "name": f"{mine} against {peer} ({how})",
        "value": round(float(shorter.mean()), 1),
        "unit": "% shorter",
        "goal": PUBLISHED[peer],
        "better": "higher",
        "note": f"{np.mean(my_s):.0f} s and {np.mean(peer_s):.0f} s; shorter on {int((shorter > 0).sum())} of {SEEDS} "
        f"seeds, p = {chance:.1g}",
    }
