"""Better constants for a site, evolved on its own recent past, and adopted only when they win on a later, unseen piece.

The jobs are replayed in the imagined cluster under the rule alone, which takes a fraction of a second for a day, and
whose constants the search shares. Two thirds of the jobs are for finding, the last third is looked at once.
"""

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np

from ones_slurm.model.cluster import NodeView
from ones_slurm.model.errors import UsageError
from ones_slurm.policy.ones.constants import DEFAULTS, Constants
from ones_slurm.policy.psrpt import Psrpt
from ones_slurm.sim.job import Submission
from ones_slurm.study.setting import Setting, simulate_jobs

SEEN = 2 / 3
# Fewer jobs say nothing (ours: means over fewer differ by tenths from chance alone).
LEAST_JOBS = 30
# Parents and children of a generation, and how far a child is from its parent (ours: a tenth is what makes a
# difference, and a factor of two is out of reach only for one generation).
PARENTS, CHILDREN, STEP = 3, 6, 0.2
# New constants must beat the present ones by this much on the unseen piece (ours: less is noise).
CLEARLY = 0.015
# Where each constant makes sense at all.
BOUNDS = {
    "alpha": (0.25, 4.0),
    "grow_below": (0.3, 0.95),
    "grow_below_cheap": (0.3, 0.98),
    "shrink_gain": (1.1, 5.0),
    "departure": (0.3, 0.3),  # the rule does not know it
}


class Tuned(msgspec.Struct, frozen=True):
    """What was found. `before_s` and `after_s` are mean completion times on the unseen piece; `tried` counts replays.

    `constants` are the present ones unless the others were `adopted`.
    """

    constants: Constants
    adopted: bool
    before_s: float
    after_s: float
    tried: int


def tune(
    work: Sequence[Submission],
    nodes: Sequence[NodeView],
    setting: Setting,
    *,
    present: Constants = DEFAULTS,
    generations: int = 5,
    seed: int = 1,
) -> Tuned:
    """Evolves the constants on the earlier jobs and judges them on the later ones. Raises `UsageError` for too few."""
    if len(work) < LEAST_JOBS:
        raise UsageError(
            f"{len(work)} jobs are too few to tune anything", hint=f"at least {LEAST_JOBS}; take a longer time"
        )
    jobs = sorted(work, key=lambda job: (job.submit_s, job.job_id))
    cut = int(len(jobs) * SEEN)
    seen, unseen = jobs[:cut], jobs[cut:]
    rng = np.random.default_rng(seed)
    known: dict[Constants, float] = {}

    def cost_s(constants: Constants) -> float:
        if constants not in known:
            known[constants] = _mean_s(seen, nodes, setting, constants)
        return known[constants]

    parents = [present]
    for _ in range(generations):
        children = [_changed(parents[int(rng.integers(len(parents)))], rng) for _ in range(CHILDREN)]
        parents = sorted(dict.fromkeys([*parents, *children]), key=cost_s)[:PARENTS]
    before_s, after_s = (_mean_s(unseen, nodes, setting, constants) for constants in (present, parents[0]))
    adopted = after_s < before_s * (1.0 - CLEARLY)
    return Tuned(parents[0] if adopted else present, adopted, before_s, after_s, len(known) + 2)


def _changed(constants: Constants, rng: np.random.Generator) -> Constants:
    """Each constant is multiplied by a factor near one, and kept where it makes sense."""
    factors = np.exp(rng.normal(0.0, STEP, len(BOUNDS)))
    values = {
        name: float(np.clip(getattr(constants, name) * factor, low, high))
        for (name, (low, high)), factor in zip(BOUNDS.items(), factors, strict=True)
    }
    return dataclasses.replace(constants, **values)


def _mean_s(jobs: Sequence[Submission], nodes: Sequence[NodeView], setting: Setting, constants: Constants) -> float:
    rule = Psrpt(history=True, constants=constants)
    return simulate_jobs(jobs, rule.name, setting, nodes, decides=rule).figures.mean_s
