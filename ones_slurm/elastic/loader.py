"""A data loader whose place in the epoch survives a change of size, whatever its workers have read ahead."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ones_slurm.elastic import sampler
from ones_slurm.elastic.world import World
from ones_slurm.model.errors import UsageError


class Loader:
    """Iterating it yields this rank's share of each batch from the present position to the end of the epoch.

    `drawn` is the share handed out last. `position` is moved only by the job, once the share was trained on. Whoever
    changes `weights` or `batch` in mid-epoch calls `plan_again`: from the next share on all goes by the new ones.
    """

    def __init__(
        self,
        dataset: "Dataset[Any]",
        *,
        world: World,
        batch: int,
        shuffle: bool,
        seed: int,
        begin: Callable[[], None],
        drawing: Callable[[sampler.Share], None],
        between: Callable[[], None] = lambda: None,
        max_local: int | None = None,
        **options: Any,
    ) -> None:
        if max_local is not None and max_local < 1:
            raise UsageError(f"max_local_batch must be at least 1, not {max_local}")
        self.samples = len(dataset)  # type: ignore[arg-type]
        sampler.check_fits(self.samples, world.size)
        self._dataset, self._world, self._shuffle, self._seed = dataset, world, shuffle, seed
        self._begin, self._drawing, self._between, self._options = begin, drawing, between, options
        self.batch, self.max_local = batch, max_local
        self.weights = (1,) * world.size
        self.epoch = 0
        self.position = 0
        self.drawn: sampler.Share | None = None
        self._stale = False

    def __len__(self) -> int:
        """The batches that it yields in the rest of this epoch: its steps, or more where a step takes several."""
        steps = sampler.steps(self.samples, self.position, self.batch, self._world.size)
        return sum(sampler.passes(end - begin, self.weights, self.max_local) for begin, end in steps)

    def plan_again(self) -> None:
        """Shares that were not handed out yet are cut anew, from `position` on."""
        self._stale = True

    def enter(self, world: World, batch: int) -> None:
        """Another world reads on from `position`."""
        self._world, self.batch, self.weights = world, batch, (1,) * world.size
        self.plan_again()

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        epoch = self.epoch
        order = sampler.order_of_epoch(self.samples, seed=self._seed, epoch=epoch, shuffle=self._shuffle)
        self._stale = True
        while self._stale and self.epoch == epoch:
            self._stale = False
            yield from self._planned(order)

    def _planned(self, order: Any) -> Iterator[Any]:
        world = self._world
        # Worked out as it is needed: the whole plan of a large dataset would take seconds, at each change of size.
        plan = functools.partial(
            sampler.shares,
            order,
            position=self.position,
            batch=self.batch,
            rank=world.rank,
            ranks=world.size,
            weights=self.weights,
            max_local=self.max_local,
        )
        # Workers are seeded from a generator of their own: drawing from torch's would shift the model's random numbers.
        chance = torch.Generator().manual_seed(hash((self._seed, self.epoch, self.position, world.rank)) % 2**63)
        batches = DataLoader(self._dataset, batch_sampler=_Indices(plan), generator=chance, **self._options)
        for share, batch in zip(plan(), batches, strict=True):
            self.drawn = share
            self._drawing(share)
            yield batch
            if share.last:
                self._between()
            if self._stale:
                return


class _Indices:
    """What each share reads, for torch's DataLoader, which runs ahead of the shares that are handed out."""

    def __init__(self, plan: Callable[[], Iterator[sampler.Share]]) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[list[int]]:
        return (share.indices for share in self._plan())
