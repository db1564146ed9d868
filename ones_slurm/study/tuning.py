"""Better constants for a site, evolved on its own recent past, and adopted only when they win on a later, unseen piece.

The jobs are replayed in the imagined cluster under the rule alone, which takes a fraction of a second for a day, and
whose constants the search shares. Two thirds of the jobs are for finding; the last third is looked at once, under the
policy that the site runs.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ones_slurm.model.cluster import NodeView
from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Constants
from ones_slurm.model.sockets import Policy
from ones_slurm.policy.ones.constants import DEFAULTS
from ones_slurm.policy.psrpt import Psrpt
from ones_slurm.policy.registry import TUNABLE
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
}
# Digits of a constant: what is judged is what a site file says.
DIGITS = 4


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `before_s` and `after_s` are mean completion times on the unseen piece; `tried` counts replays.

    `constants` are the present ones unless the others were `adopted`. `seen` and `unseen` count jobs.
    """

    constants: Constants
    adopted: bool
    before_s: float
    after_s: float
    tried: int
    seen: int
    unseen: int


def tune(
    work: Sequence[Submission],
    nodes: Sequence[NodeView],
    setting: Setting,
    *,
    present: Constants = DEFAULTS,
    generations: int = 5,
    seed: int = 1,
    judge: str = "psrpt",
    told: Callable[[int], None] | None = None,
) -> Tuned:
    """Evolves the constants on the earlier jobs, and judges them on the later ones under the policy `judge`.

    `told` hears how many generations are over. Raises `UsageError` for too few elastic jobs, and for a policy that has
    no constants.
    """
    if judge not in TUNABLE:
        raise UsageError(f"policy {judge} has no constants", hint=f"those that have: {', '.join(TUNABLE)}")
    elastic = sum(job.wish is not None for job in work)
    if elastic < LEAST_JOBS:
        raise UsageError(
            f"{elastic} elastic jobs are too few to tune anything",
            hint=f"at least {LEAST_JOBS}: take a longer time, or `--assume 2` takes other whole-node jobs as elastic",
        )
    jobs = sorted(work, key=lambda job: (job.submit_s, job.job_id))
    cut = int(len(jobs) * SEEN)
    seen, unseen = jobs[:cut], jobs[cut:]
    rng = np.random.default_rng(seed)
    known: dict[Constants, float] = {}

    def cost_s(constants: Constants) -> float:
        if constants not in known:
            known[constants] = _mean_s(seen, nodes, setting, Psrpt(history=True, constants=constants))
        return known[constants]

    parents = [present]
    for generation in range(generations):
        children = [_changed(parents[int(rng.integers(len(parents)))], rng) for _ in range(CHILDREN)]
        parents = sorted(dict.fromkeys([*parents, *children]), key=cost_s)[:PARENTS]
        if told is not None:
            told(generation + 1)
    before_s, after_s = (
        _mean_s(unseen, nodes, setting, TUNABLE[judge](history=True, constants=constants))
        for constants in (present, parents[0])
    )
    adopted = after_s < before_s * (1.0 - CLEARLY)
    return Tuned(
        constants=parents[0] if adopted else present,
        adopted=adopted,
        before_s=before_s,
        after_s=after_s,
        tried=len(known) + 2,
        seen=len(seen),
        unseen=len(unseen),
    )


def site_piece(constants: Constants) -> str:
    """The piece of a site file that says so."""
    values = msgspec.structs.asdict(constants)
    return "\n".join(["[policy.constants]", *(f"{name} = {value!r}" for name, value in values.items())]) + "\n"


def _changed(constants: Constants, rng: np.random.Generator) -> Constants:
    """Each constant is multiplied by a factor near one, and kept where it makes sense."""
    factors = np.exp(rng.normal(0.0, STEP, len(BOUNDS)))
    values = {
        name: float(f"{np.clip(getattr(constants, name) * factor, low, high):.{DIGITS}g}")
        for (name, (low, high)), factor in zip(BOUNDS.items(), factors, strict=True)
    }
    return msgspec.structs.replace(constants, **values)


def _mean_s(jobs: Sequence[Submission], nodes: Sequence[NodeView], setting: Setting, policy: Policy) -> float:
    return simulate_jobs(jobs, policy.name, setting, nodes, decides=policy).figures.mean_s
