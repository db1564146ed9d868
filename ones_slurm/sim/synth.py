"""A trace out of nothing but a seed: who comes when, with what and how large."""

import numpy as np

from ones_slurm.model.errors import UsageError
from ones_slurm.sim.application import LIMITS
from ones_slurm.sim.recipes import RECIPES, tuned_batch
from ones_slurm.sim.trace import Row

# Sizes of traced jobs and their shares: what the Philly trace has, rounded (93 % of its jobs take one GPU).
SIZES = {1: 0.86, 2: 0.04, 4: 0.04, 8: 0.04, 16: 0.01, 32: 0.01}
# Of how many GPUs a user asks for a measured application, at which tuned batch (ours, in the range of the Pollux ones).
ASKED = {
    "bert": (4, 96),
    "cifar10": (4, 1024),
    "deepspeech2": (4, 160),
    "imagenet": (16, 3200),
    "ncf": (1, 32768),
    "yolov3": (4, 64),
}
# Running times of traced jobs, log-normal: median 15 min, and one in twenty above 16 h (as in Philly, rounded).
MEDIAN_S, SIGMA = 900.0, 2.5
LONGEST_S = 30 * 86400.0


def synthesise(
    jobs: int, *, hours: float, mix: dict[str, float], arrivals: str = "poisson", largest: int = 64, seed: int = 1
) -> list[Row]:
    """So many jobs over so many hours, in the order of submission.

    `mix` gives the share of each class: an application, an ONES recipe, or `traced`. `arrivals` is poisson, uniform
    (as in ONES) or daily, which has three times as many at noon as at midnight.
    """
    unknown = sorted(mix.keys() - LIMITS.keys() - RECIPES.keys() - {"traced"})
    if unknown or not mix or min(mix.values()) <= 0:
        raise UsageError(
            f"the mix names an unknown class: {unknown[0]}"
            if unknown
            else "each class of the mix needs a share above 0",
            hint=f"classes: traced, {', '.join([*LIMITS, *RECIPES])}",
        )
    rng = np.random.default_rng(seed)
    names = sorted(mix)
    shares = np.array([mix[name] for name in names])
    kinds = rng.choice(names, size=jobs, p=shares / shares.sum())
    times = np.sort(_arrivals(arrivals, jobs, hours * 3600.0, rng))
    width = len(str(jobs))
    return [
        _row(f"job-{number:0{width}}", float(round(at_s)), str(kind), largest, rng)
        for number, (at_s, kind) in enumerate(zip(times, kinds, strict=True), start=1)
    ]


def _arrivals(process: str, jobs: int, span_s: float, rng: np.random.Generator) -> "np.ndarray":
    if process == "poisson":  # given their number, they are uniform
        return rng.uniform(0.0, span_s, jobs)
    if process == "uniform":
        gaps = rng.uniform(0.0, 2 * span_s / jobs, jobs)
        return np.asarray(np.cumsum(gaps))
    if process == "daily":
        chosen: list[float] = []
        while len(chosen) < jobs:
            at_s = rng.uniform(0.0, span_s)
            if rng.random() < (2 - np.cos(2 * np.pi * at_s / 86400.0)) / 3:
                chosen.append(float(at_s))
        return np.array(chosen)
    raise UsageError(f"there is no arrival process {process!r}", hint="there are: poisson, uniform, daily")


def _row(job_id: str, submit_s: float, kind: str, largest: int, rng: np.random.Generator) -> Row:
    if kind == "traced":
        sizes = [size for size in SIZES if size <= largest]
        shares = np.array([SIZES[size] for size in sizes])
        gpus = int(rng.choice(sizes, p=shares / shares.sum()))
        duration_s = float(min(max(round(rng.lognormal(np.log(MEDIAN_S), SIGMA)), 1), LONGEST_S))
        limit_s = float(np.ceil(duration_s * rng.uniform(1.0, 5.0) / 3600.0) * 3600.0)  # users round up, generously
        return Row(job_id=job_id, submit_s=submit_s, gpus=gpus, duration_s=duration_s, time_limit_s=limit_s)
    gpus, batch = ASKED[kind] if kind in LIMITS else (RECIPES[kind].gpus, tuned_batch(RECIPES[kind], largest))
    return Row(job_id=job_id, submit_s=submit_s, gpus=min(gpus, largest), application=kind, batch=batch)
