"""Which samples each step trains on, and which of them each rank.

A position in an epoch is a number of samples, not of steps: it means the same for every batch size and every world,
so an epoch that is cut anywhere goes on at the next sample. All is worked out from (seed, epoch, position); ranks
never talk about it.
"""

import functools
from collections.abc import Iterator

import msgspec
import numpy as np

from ones_slurm.model.errors import UsageError


class Share(msgspec.Struct, frozen=True):
    """What this rank trains on at once: dataset indices, the size of the whole batch, and the position after it.

    `own` of the indices count. It is 0 where a rank got none and borrows a sample, of weight nothing, to take part.
    A rank whose part of the batch does not fit gets it in several shares; the optimizer's step follows the `last`.
    """

    indices: list[int]
    own: int
    batch: int
    position: int
    last: bool = True


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


@functools.lru_cache(maxsize=256)
def portions(batch: int, weights: tuple[int, ...]) -> tuple[int, ...]:
    """How many samples of a batch each rank gets: in proportion to the weights, at least one while there are enough.

    Whole numbers all through (largest remainders, the lower rank first), so that all ranks find the same.
    """
    ranks, whole = range(len(weights)), sum(weights)
    got = [batch * weight // whole for weight in weights]
    by_rest = sorted(ranks, key=lambda rank: (-(batch * weights[rank] % whole), rank))
    for rank in by_rest[: batch - sum(got)]:
        got[rank] += 1
    for rank in ranks if batch >= len(weights) else ():
        if got[rank] == 0:
            got[max(ranks, key=got.__getitem__)] -= 1
            got[rank] = 1
    return tuple(got)


def passes(batch: int, weights: tuple[int, ...], max_local: int | None) -> int:
    """In how many shares each rank gets its part, so that none is larger than `max_local` samples (None: any fits).

    The same on every rank, for a model may talk to the others in each pass (SyncBatchNorm does).
    """
    return 1 if max_local is None else -(-max(portions(batch, weights)) // max_local)


def shares(
    order: np.ndarray,
    *,
    position: int,
    batch: int,
    rank: int,
    ranks: int,
    weights: tuple[int, ...] = (),
    max_local: int | None = None,
) -> Iterator[Share]:
    """One rank's shares from `position` to the end of the epoch; without weights, parts of a batch differ by ≤ 1.

    Only an epoch that was left close to its end, and goes on in a larger world, has a batch smaller than the world.
    """
    weights = weights or (1,) * ranks
    for begin, end in steps(len(order), position, batch, ranks):
        parts = portions(end - begin, weights)
        first, own = begin + sum(parts[:rank]), parts[rank]
        several = passes(end - begin, weights, max_local)
        for at in range(several):
            cuts = [first + own * edge // several for edge in (at, at + 1)]
            mine = order[cuts[0] : cuts[1]].tolist()
            yield Share(mine or [int(order[begin])], len(mine), end - begin, end, at + 1 == several)


def steps(samples: int, position: int, batch: int, ranks: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of each batch of the rest of the epoch."""
    while position < samples:
        end = cut(samples, position, batch, ranks)
        yield position, end
        position = end


def steps_left(samples: int, position: int, batch: int, ranks: int) -> int:
    """How many steps the rest of the epoch takes."""
    return sum(1 for _ in steps(samples, position, batch, ranks))
