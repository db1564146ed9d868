"""Unequal shares for unequal ranks: each gets its part of a batch in proportion to its measured speed.

A mixed allocation goes at the pace of its slowest GPU when all shares are equal. As each share weighs by its samples,
the gradient is the mean over the batch either way (the idea of Adaptive SGD, Ma et al. 2021). Ranks leave their speed
in the store when they have measured it; rank 0 reads them there once a window and now and then proposes other shares.
"""

import statistics

from ones_slurm.elastic.agreement import Store
from ones_slurm.elastic.sampler import portions

# Ours: the median of three outlives one hiccup of the machine.
_ENOUGH = 3
# Ours: a step that would be at least 5 % shorter is worth cutting the epoch anew, which stops the data's workers.
_WORTH = 1.05
# Weights are whole numbers of thousandths of the fastest rank's.
_FINE = 1000


class Balance:
    """One rank's part. `weights` are those that all ranks cut their batches by."""

    def __init__(self, store: Store, rank: int, ranks: int) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._changes = 0
        self._told = 0

    def tell(self, samples_per_s: list[float]) -> None:
        """This rank's measurements since the last change. Costs one operation of the store when there is a new one."""
        if len(samples_per_s) > self._told:
            self._told = len(samples_per_s)
            speed = statistics.median(samples_per_s[-2 * _ENOUGH :])
            self._store.set(f"speed/{self._rank}", f"{self._changes}:{self._told}:{speed!r}")

    def propose(self, batch: int, weights: tuple[int, ...]) -> tuple[int, ...] | None:
        """On rank 0: better weights, once every rank has measured enough; None while these will do."""
        if self._told < _ENOUGH:
            return None
        speeds = []
        for rank in range(self._ranks):
            changes, told, speed = self._store.get(f"speed/{rank}").decode().split(":")
            if int(changes) != self._changes or int(told) < _ENOUGH:
                return None
            speeds.append(float(speed))
        wanted = tuple(max(round(_FINE * speed / max(speeds)), 1) for speed in speeds)
        return wanted if _step_s(batch, weights, speeds) > _WORTH * _step_s(batch, wanted, speeds) else None

    def changed(self) -> None:
        """All ranks go by other weights from now on, so that what was measured before counts no more."""
        self._changes += 1
        self._told = 0


def _step_s(batch: int, weights: tuple[int, ...], speeds: list[float]) -> float:
    """How long the slowest rank computes."""
    return max(part / speed for part, speed in zip(portions(batch, weights), speeds, strict=True))
