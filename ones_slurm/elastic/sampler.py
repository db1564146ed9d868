"""Which samples each step trains on, and which of them each rank.

A position in an epoch is a number of samples, not of steps: it means the same for every batch size and every world,
so an epoch that is cut anywhere goes on at the next sample. All is worked out from (seed, epoch, position); ranks
never talk about it.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from ones_slurm.model.errors import UsageError


class Share(msgspec.Struct, frozen=True):
    """One step: the dataset indices of this rank, the size of the whole batch, and the position after it.

    `own` of the indices count. It is 0 where a rank got none and borrows a sample, of weight nothing, to take part.
    """

    indices: list[int]
    own: int
    batch: int
    position: int


def order_of_epoch(samples: int, *, seed: int, epoch: int, shuffle: bool) -> np.ndarray:
    """The order in which an epoch visits the dataset: (samples,) indices, the same on every rank."""
    if not shuffle:
        return np.arange(samples)
    return np.random.default_rng([seed, epoch]).permutation(samples)


def check_fits(samples: int, ranks: int) -> None:
    """Raises `UsageError` when there are fewer samples than ranks: a rank without a sample has no gradient."""
    if samples < ranks:
        raise UsageError(f"the dataset has {samples} samples, fewer than the {ranks} ranks", hint="ask for fewer nodes")


def cut(samples: int, position: int, batch: int, ranks: int) -> int:
    """Where the batch that begins at `position` ends.

    A rest of fewer samples than ranks is folded into the last batch, so that each rank has a sample in each step.
    A batch smaller than the world is raised to one sample a rank for the same reason.
    """
    end = min(position + max(batch, ranks), samples)
    return samples if samples - end < ranks else end


def shares(order: np.ndarray, *, position: int, batch: int, rank: int, ranks: int) -> Iterator[Share]:
    """The steps from `position` to the end of the epoch; each batch is dealt out in turn, so shares differ by ≤ 1.

    Only an epoch that was left close to its end, and goes on in a larger world, has a batch smaller than the world.
    """
    while position < len(order):
        end = cut(len(order), position, batch, ranks)
        whole = order[position:end].tolist()
        own = whole[rank::ranks]
        yield Share(own or whole[:1], len(own), len(whole), end)
        position = end


def steps_left(samples: int, position: int, batch: int, ranks: int) -> int:
    """How many steps the rest of the epoch takes."""
    steps = 0
    while position < samples:
        position = cut(samples, position, batch, ranks)
        steps += 1
    return steps
