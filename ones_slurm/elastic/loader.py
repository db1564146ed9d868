"""A data loader whose place in the epoch survives a change of size, whatever its workers have read ahead."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ones_slurm.elastic import sampler
from ones_slurm.elastic.world import World


class Loader:
    """Iterating it yields this rank's share of each batch from the present position to the end of the epoch.

    `drawn` is the share handed out last. `position` is moved only by the job, once the share was trained on.
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
        **options: Any,
    ) -> None:
        self.samples = len(dataset)  # type: ignore[arg-type]
        sampler.check_fits(self.samples, world.size)
        self._dataset, self._world, self._shuffle, self._seed = dataset, world, shuffle, seed
        self._begin, self._options = begin, options
        self.batch = batch
        self.epoch = 0
        self.position = 0
        self.drawn: sampler.Share | None = None

    def __len__(self) -> int:
        """The steps that are left in this epoch."""
        return sampler.steps_left(self.samples, self.position, self.batch, self._world.size)

    def __iter__(self) -> Iterator[Any]:
        order = sampler.order_of_epoch(self.samples, seed=self._seed, epoch=self.epoch, shuffle=self._shuffle)
        world = self._world
        plan = list(sampler.shares(order, position=self.position, batch=self.batch, rank=world.rank, ranks=world.size))
        # Workers are seeded from a generator of their own: drawing from torch's would shift the model's random numbers.
        chance = torch.Generator().manual_seed(hash((self._seed, self.epoch, self.position, world.rank)) % 2**63)
        batches = DataLoader(
            self._dataset, batch_sampler=[share.indices for share in plan], generator=chance, **self._options
        )
        self._begin()
        for share, batch in zip(plan, batches, strict=True):
            self.drawn = share
            yield batch
