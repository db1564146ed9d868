"""PSRPT as a policy: the rule of `ones/rule.py` by itself, the baseline that any search has to beat."""

import numpy as np

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.model.settings import Constants
from ones_slurm.policy.ones.constants import DEFAULTS
from ones_slurm.policy.ones.plans import plan_of
from ones_slurm.policy.ones.rule import psrpt_sizes
from ones_slurm.policy.ones.situation import situation_of


class Psrpt:
    """Shortest remaining GPU time first, sized by a price; `history` lets it learn from ended jobs of the same kind."""

    name = "psrpt"

    def __init__(self, *, history: bool = False, constants: Constants = DEFAULTS) -> None:
        self._history, self._constants = history, constants

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Sizes by the rule, then places."""
        at = situation_of(view, history=self._history, constants=self._constants)
        return plan_of(view, at, *psrpt_sizes(at)) if at.jobs else Plan()
