"""Lightning's Trainer as an elastic job: a callback, a loader, and the options that fit the allocation.

    elastic = ElasticCallback(batch_size=64)
    trainer = L.Trainer(max_epochs=20, callbacks=[elastic], **elastic.trainer_options())
    trainer.fit(module, elastic.loader(train_set, shuffle=True), ckpt_path=elastic.checkpoint())

Lightning saves and restores its own state, into our checkpoint files. Each sample of an epoch is seen once through any
sequence of sizes, for the loader's position is part of that state. Needs the extra `lightning`.
"""
# ruff: noqa: ARG002 - the hooks' arguments are Lightning's

import collections
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import Dataset

from ones_slurm.elastic import chance, checkpoint
from ones_slurm.elastic.gauge import Gauge
from ones_slurm.elastic.guest import Guest
from ones_slurm.elastic.loader import Loader
from ones_slurm.elastic.noise import NoiseScale
from ones_slurm.elastic.sampler import Share
from ones_slurm.elastic.world import World
from ones_slurm.model.errors import UsageError


class ElasticCallback(Callback):
    """`batch_size` is the global batch, over all ranks, that the module's learning rate was chosen for.

    The co-scheduler may change it, and the rate with it. Between two optimizer steps all ranks may save or leave;
    leaving raises SystemExit(75).
    """

    def __init__(self, batch_size: int, *, seed: int = 0) -> None:
        self._guest, self._seed = Guest(batch_size), seed
        self._files = _Files(self._guest)
        self._loader: Loader | None = None
        self._gauge: Gauge | None = None
        self._noise = NoiseScale()
        self._shares: collections.deque[Share] = collections.deque()
        self._position = 0
        self._chances: list[bytes] = []

    @property
    def world(self) -> World:
        """The world of this generation."""
        return self._guest.world

    def trainer_options(self) -> dict[str, Any]:
        """Devices, strategy and plugins for `Trainer(...)`, so that Lightning's world is the one of this generation."""
        world = self.world
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return {
            "accelerator": world.device.type,
            "devices": [world.local_rank] if world.size == 1 and world.device.type == "cuda" else local,
            "num_nodes": max(world.size // local, 1),
            "strategy": "ddp" if world.size > 1 else "auto",
            "plugins": [_Environment(world), self._files] if world.size > 1 else [self._files],
        }

    def loader(self, dataset: "Dataset[Any]", *, shuffle: bool = False, **options: Any) -> "_Unsized":
        """The training set's loader; `options` go to torch's DataLoader. One a callback."""
        if self._loader is not None:
            raise UsageError("a callback has one training loader", hint="use torch's DataLoader for other data sets")
        self._loader = Loader(
            dataset,
            world=self.world,
            batch=self._guest.batch,
            shuffle=shuffle,
            seed=self._seed,
            begin=self._take_chance,
            drawing=self._shares.append,
            **options,
        )
        return _Unsized(self._loader)

    def checkpoint(self) -> pathlib.Path | None:
        """The newest whole checkpoint of the run folder, for `fit(..., ckpt_path=)`."""
        folder, name = self._guest.folder, ""
        if folder is not None and self.world.rank == 0:
            found, notes = checkpoint.find_whole(folder.checkpoints)
            name = found.name if found is not None else ""
            if self._guest.speaker is not None:
                self._guest.speaker.notes += notes
        name = self._guest.newest(name)
        return folder.checkpoints / name if name and folder is not None else None

    def state_dict(self) -> dict[str, Any]:
        """Lightning keeps it in the checkpoint."""
        noise = [self._noise.count, self._noise.sqr, self._noise.var]
        chances = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in self._chances]
        return {**self._guest.state(), "position": self._position, "noise": noise, "chances": chances}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lightning found it in the checkpoint."""
        self._guest.restore(state_dict)
        self._position = state_dict["position"]
        self._noise = NoiseScale(*state_dict["noise"])
        self._chances = [saved.numpy().tobytes() for saved in state_dict["chances"]]
        if self._loader is not None:
            self._loader.epoch, self._loader.position = self._guest.epoch, self._position
        if len(self._chances) != self.world.size:
            chance.derive(self._seed, self.world.rank, self._guest.steps)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Everything is restored."""
        if self._loader is None:
            raise UsageError("training needs the loader of this callback", hint="fit(module, elastic.loader(dataset))")
        for optimizer in trainer.optimizers:
            self._guest.guide(optimizer)
        world = self.world
        self._gauge = Gauge(list(pl_module.parameters()), rank=world.rank, ranks=world.size, device=world.device)
        self._gauge.noise = self._noise
        epochs = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs > 0 else None
        self._guest.begin(epoch_samples=self._loader.samples, epochs=epochs)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        """The loss is a mean over this rank's samples; the gradient is to be one over the whole batch."""
        share = self._shares[0]
        weight = share.own * self.world.size / share.batch
        if weight != 1.0:
            loss.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]
        if self._gauge is not None:
            self._gauge.before_backward(share, held=False)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The gradients are there."""
        if self._gauge is not None:
            self._gauge.after_backward(self._shares[0])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts the batch, and between two optimizer steps does what all ranks agreed on."""
        share, guest, loader = self._shares.popleft(), self._guest, self._loader
        assert loader is not None
        guest.count(share.batch)
        self._position = loader.position = share.position
        if isinstance(outputs, dict) and "loss" in outputs:
            guest.last_loss = float(outputs["loss"].detach()) if guest.speaker is not None else None
        if self._gauge is not None:
            self._gauge.settle()
            guest.measured = self._noise.metrics(guest.base_batch)
        # What belongs to the end of an epoch would be missed; and half a sum of gradients is in no checkpoint.
        if share.position == loader.samples or (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        verb = guest.agreement.after_step()
        if verb != "go" and guest.folder is not None:
            self._save(trainer, leaving=verb == "leave")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The next epoch begins at its first sample."""
        if self._guest.speaker is not None:
            metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if value.numel() == 1}
            self._guest.speaker.metrics = metrics
        if not self._shares and self._loader is not None and self._loader.position == self._loader.samples:
            self._guest.epoch += 1
            self._loader.epoch, self._position = self._guest.epoch, 0
            self._loader.position = 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last word."""
        self._guest.finish()

    def _save(self, trainer: Trainer, *, leaving: bool) -> None:
        assert self._guest.folder is not None
        # Rank 0 alone gets to know them all, and rank 0 alone writes.
        self._chances = self._guest.agreement.gather(chance.pack())
        trainer.save_checkpoint(self._guest.folder.checkpoints / checkpoint.name_of(self._guest.steps))
        self._chances = []
        self._guest.saved(self._files.fault, leaving=leaving)

    def _take_chance(self) -> None:
        """The random numbers go on when the loop begins to draw data."""
        if len(self._chances) == self.world.size:
            chance.restore(self._chances[self.world.rank])
        self._chances = []


class _Unsized:
    """The loader without its length: what is left of an epoch is none that Lightning could use for the next one."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


class _Environment(ClusterEnvironment):
    """The world as ones-rank or torchrun describe it, whatever Slurm's own variables say."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._world.size

    def set_world_size(self, size: int) -> None:
        """It is not Lightning's to set."""

    def global_rank(self) -> int:
        return self._world.rank

    def set_global_rank(self, rank: int) -> None:
        """It is not Lightning's to set."""

    def local_rank(self) -> int:
        return self._world.local_rank

    def node_rank(self) -> int:
        return self._world.rank // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class _Files(TorchCheckpointIO):
    """Lightning's files, of which those in the run folder are written and read as ours are: whole, or not at all."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self.fault = ""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        if not self._is_ours(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        self.fault = ""
        try:
            _save(pathlib.Path(path).parent, self._guest.steps, checkpoint)
        except OSError as error:
            self.fault = str(error)  # told to all ranks after Lightning's barrier

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        if self._is_ours(path):
            return checkpoint.load(pathlib.Path(path))
        loaded: dict[str, Any] = super().load_checkpoint(path, map_location, weights_only)
        return loaded

    def _is_ours(self, path: Any) -> bool:
        return self._guest.folder is not None and pathlib.Path(path).parent == self._guest.folder.checkpoints


def _save(folder: pathlib.Path, step: int, state: dict[str, Any]) -> None:
    checkpoint.save(folder, step, state)
