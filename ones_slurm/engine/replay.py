"""Decides every recorded view again and compares the plans bit by bit."""

from collections.abc import Callable

import msgspec
import numpy as np

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.ladder import Laddered
from ones_slurm.engine.packing import decode_plan, encode_plan
from ones_slurm.model.plan import Plan
from ones_slurm.model.sockets import Policy


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first tick at which a plan came out differently."""

    tick: int
    recorded: Plan
    replayed: Plan


def chance(seed: int, tick: int) -> np.random.Generator:
    """All the chance that a decision has: one generator per tick, so that each tick can be replayed alone."""
    return np.random.default_rng([seed, tick])


def replay(journal: Journal, policy_named: Callable[[str], Policy]) -> tuple[int, Difference | None]:
    """How many ticks were decided again, and the first difference if there is one."""
    policies: dict[str, Policy] = {}
    ticks = 0
    for recorded in journal.recorded_ticks():
        policy = policies.setdefault(recorded.policy, Laddered(policy_named(recorded.policy)))
        plan = policy.decide(recorded.view, chance(recorded.seed, recorded.tick))
        ticks += 1
        # Written anew, for an older journal's plan lacks the fields that came later.
        there = decode_plan(recorded.plan)
        if encode_plan(plan) != encode_plan(there):
            return ticks, Difference(tick=recorded.tick, recorded=there, replayed=plan)
    return ticks, None
