"""How well the speed of a training is known at sizes that it never had, on the measured Pollux applications.

`ONES_DATA` names the folder that holds `pollux/`. Each case is tried twice: with what jobs of the *other* applications
left behind, so that only the network is known, and with one earlier job of the same kind as well. Local batches are
drawn at random from the allowed range, for measurements and predictions alike.
"""

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ones_slurm.model.cluster import Past, Speed
from ones_slurm.policy.ones.network import network_of
from ones_slurm.policy.ones.throughput import fit_speeds
from ones_slurm.sim.application import Application, spread

NAMES = ("bert", "cifar10", "deepspeech2", "imagenet", "yolov3")
SIZES = (1, 2, 3, 4, 8, 12, 16, 24, 32, 48, 64)
SEEDS = 12
# Sizes tried, and the sizes predicted from them.
CASES = {
    "after one node, within it": ((4,), (1, 2, 3)),
    "after one node, over several": ((4,), SIZES[4:]),
    "after three sizes": ((4, 8, 16), SIZES),
}
GOALS = {"after one node, over several": 10.0, "after one node, within it": 10.0, "after three sizes": 5.0}


def run() -> list[dict[str, Any]]:
    """Median relative errors of the time of a step, in percent."""
    data = os.environ.get("ONES_DATA")
    if data is None:
        return [_row("speeds at untried sizes", 0.0, None, "ONES_DATA not given: skipped")]
    known = {name: Application(name, Path(data) / "pollux" / "profiles") for name in NAMES}
    errors: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        ended = {name: [_ended(app, rng) for _ in range(3)] for name, app in known.items()}
        for name, app in known.items():
            network = network_of([job for other in NAMES if other != name for job in ended[other]])
            for case, (tried, asked) in CASES.items():
                mine = tuple(_measure(app, gpus, rng) for gpus in tried for _ in range(2))
                for kind in (False, True):
                    model = fit_speeds(mine, ended[name][0].speeds if kind else (), network)
                    for gpus in set(asked) - set(tried):
                        real = _measure(app, gpus, rng)
                        shape = (np.array([float(each)]) for each in (gpus, real.nodes, real.local_batch))
                        errors[case, kind].append(abs(float(model.step_s(*shape)[0]) / real.step_s - 1.0))
    return [
        _row(
            f"speed {case}{', one earlier job of the kind' if kind else ''}",
            100.0 * float(np.median(found)),
            GOALS[case],
            f"{len(found)} predictions; nine in ten within {100.0 * float(np.quantile(found, 0.9)):.0f} %",
        )
        for (case, kind), found in errors.items()
    ]


def _ended(app: Application, rng: np.random.Generator) -> Past:
    sizes = (4, *rng.choice((1, 8, 12, 16, 24, 32), int(rng.integers(1, 4)), replace=False).tolist())
    speeds = tuple(_measure(app, gpus, rng) for gpus in sizes for _ in range(int(rng.integers(1, 4))))
    return Past(user="ada", recipe=app.name, speeds=speeds)


def _measure(app: Application, gpus: int, rng: np.random.Generator) -> Speed:
    """At a random local batch, or the nearest smaller one that was ever measured there."""
    shape = spread(gpus)
    local = int(np.exp(rng.uniform(np.log(app.min_local), np.log(app.max_local))))
    while True:
        try:
            step_s, sync_s = app.step_times(shape, local)
        except ValueError:
            if local <= app.min_local:
                raise
            local = max(int(local * 0.7), app.min_local)
        else:
            return Speed(len(shape), gpus, local, step_s, sync_s)


def _row(name: str, value: float, goal: float | None, note: str) -> dict[str, Any]:
    return {"name": name, "value": round(value, 1), "unit": "% off", "goal": goal, "better": "lower", "note": note}
