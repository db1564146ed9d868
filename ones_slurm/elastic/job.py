"""The training API: a job that may save, leave and go on elsewhere at the end of any step."""

import atexit
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from ones_slurm.elastic import chance, checkpoint
from ones_slurm.elastic.agreement import Agreement
from ones_slurm.elastic.balance import Balance
from ones_slurm.elastic.gauge import Gauge
from ones_slurm.elastic.loader import Loader
from ones_slurm.elastic.noise import NoiseScale
from ones_slurm.elastic.rates import Ramp, scaled
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder
from ones_slurm.elastic.sampler import Share
from ones_slurm.elastic.speaker import Speaker
from ones_slurm.elastic.world import World, leave
from ones_slurm.model.errors import Failed, UsageError


class Job:
    """One training, through all its generations. Made by `ones_slurm.elastic.init`.

    The model is moved to this rank's device. Batches are the script's to move, where they need it (`job.device`).
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any, *, world: World, seed: int
    ) -> None:
        self.world = world
        self.epoch = 0
        self.steps = 0
        self.samples = 0
        self._model, self._optimizer, self._scheduler, self._seed = model, optimizer, scheduler, seed
        self._loader: Loader | None = None
        self._position = 0
        self._ramp = Ramp()
        self._sizes: list[dict[str, int]] = []
        self._last_loss: torch.Tensor | None = None
        self._base_batch = 0
        self._chances: list[bytes] = []
        folder = RunFolder(world.folder) if world.folder is not None else None
        self._folder = folder
        self._speaker = Speaker(folder, world) if folder is not None and world.rank == 0 else None
        self._agreement = Agreement(world.store, world.rank, world.size, self._decide)
        self._saved_s = time.monotonic()
        atexit.register(leave)
        model.to(world.device)  # before any state is restored, so that the optimizer's lands where the parameters are
        self._gauge = Gauge(list(model.parameters()), rank=world.rank, ranks=world.size, device=world.device)
        self._balance: Balance | None = None
        self._weights: tuple[int, ...] = ()
        self._proposed: tuple[int, ...] | None = None
        self._net: nn.Module = model
        self._quiet = contextlib.ExitStack()
        self._resume()

    @property
    def device(self) -> torch.device:
        """Where this rank's model and batches belong."""
        return self.world.device

    @property
    def readers(self) -> World:
        """Between whom the samples are divided."""
        return self.world

    def loader(
        self,
        dataset: "Dataset[Any]",
        batch_size: int,
        *,
        shuffle: bool = False,
        max_local_batch: int | None = None,
        by_speed: bool = False,
        **options: Any,
    ) -> Loader:
        """The loader of the training set. One a job: its place in the epoch is part of the job's state.

        `batch_size` is the global batch, over all ranks, that the script's learning rate was chosen for; the
        co-scheduler may change it. `max_local_batch` is how many samples fit on a rank: a larger part of a batch comes
        in several shares, whose gradients `step` adds up. `by_speed` gives slower ranks smaller parts, as measured.
        `options` go to torch's DataLoader (num_workers, collate_fn, …).
        """
        if self._loader is not None:
            raise UsageError("a job has one training loader", hint="use torch's DataLoader for other data sets")
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        batch = self.world.batch or batch_size
        self._base_batch = batch_size
        self._loader = Loader(
            dataset,
            world=self.readers,
            batch=batch,
            shuffle=shuffle,
            seed=self._seed,
            begin=self._take_chance,
            drawing=self._draw,
            max_local=max_local_batch,
            **options,
        )
        if by_speed and self.world.store is not None and self.readers.size == self.world.size:
            self._balance = Balance(self.world.store, self.world.rank, self.world.size)
            self._gauge.timed = True
            if len(self._weights) == self.world.size:
                self._loader.weights = self._weights
        self._loader.epoch, self._loader.position = self.epoch, self._position
        self._ramp = self._ramp.towards(self.world.lr_scale, self._loader.samples)
        if self.steps == 0:
            # Nothing was trained at another rate yet, so there is nothing to be gentle with.
            self._ramp = Ramp(self.world.lr_scale, self.world.lr_scale)
        self._sizes.append({"step": self.steps, "samples": self.samples, "ranks": self.world.size, "batch": batch})
        if self._speaker is not None:
            self._speaker.begin(self, batch=batch, base_batch=batch_size)
        return self._loader

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in the loop: DistributedDataParallel, or in a world of one the model itself."""
        if self.world.size == 1:
            return model
        device = self.world.device
        self._net = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
        return self._net

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`; between two of them the scheduler is stepped."""
        if self._speaker is not None and self._loader is not None:
            self._speaker.total_samples = count * self._loader.samples
        while self.epoch < count:
            yield self.epoch
            if self._scheduler is not None:
                self._scheduler.step()
            self.epoch += 1
            self._position = 0
            if self._loader is not None:
                self._loader.epoch, self._loader.position = self.epoch, 0
        self._finish()

    def step(self, loss: torch.Tensor) -> None:
        """Backward, optimizer step, zero_grad; then, if all ranks agreed on it, save or leave.

        `loss` is the mean over this rank's samples. It is weighted, so that the gradient is the mean over the whole
        batch however that divides. Where a part of the batch comes in several shares, all but the last only add up
        gradients. Leaving raises SystemExit(75): let it pass.
        """
        share = self._drawn()
        weight = share.own * self.world.size / share.batch
        with self._gauge.backward(share, held=self._net is not self._model):
            (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
        if share.last:
            self._advance(share, loss)

    def _draw(self, share: Share) -> None:
        """Before the script computes on a share: only the last of a step exchanges gradients between ranks."""
        self._quiet.close()
        if not share.last and isinstance(self._net, DistributedDataParallel):
            self._quiet.enter_context(self._net.no_sync())
        self._gauge.drawing(share)
        if self._balance is not None:
            self._balance.tell(self._gauge.samples_per_s)

    def _drawn(self) -> Share:
        """This rank's share of the batch that is being trained on."""
        if self._loader is None or self._loader.drawn is None:
            raise UsageError("a step needs a batch of job.loader()", hint="iterate over the loader that it returns")
        return self._loader.drawn

    def _advance(self, share: Share, loss: torch.Tensor) -> None:
        """The rest of a step, once the gradients are there."""
        with scaled(self._optimizer, self._ramp.factor):
            self._optimizer.step()
        self._optimizer.zero_grad()
        self._ramp = self._ramp.after(share.batch)
        self.steps += 1
        self.samples += share.batch
        self._position = share.position
        if self._loader is not None:
            self._loader.position = share.position
        self._last_loss = loss.detach()
        if self._may_leave(share) and (verb := self._agreement.after_step()) != "go":
            self._carry_out(verb)

    def _may_leave(self, share: Share) -> bool:
        """Not after the last of several steps of an epoch: what a script does behind its loop, often with the last
        loss, would find a loop that ran not once. The word then is given a step later, on all ranks alike."""
        return self._loader is None or share.position < self._loader.samples or share.position == share.batch

    def report(self, **metrics: float) -> None:
        """Tells the wrapper, and through it `ones queue` and the policy, how good the model is now."""
        if self._speaker is not None:
            self._speaker.metrics = {name: torch.as_tensor(value).detach().item() for name, value in metrics.items()}
            self._speaker.say(self)

    @property
    def last_loss(self) -> float | None:
        """The loss of rank 0's share of the last step."""
        return None if self._last_loss is None else float(self._last_loss)

    @property
    def measured(self) -> dict[str, float]:
        """What the policy reads beside the script's own metrics: the gradient's noise, and how many samples fit."""
        fits = self._loader.max_local if self._loader is not None else None
        self._gauge.settle()
        return {
            **({"max_local_batch": float(fits)} if fits is not None else {}),
            **(self._gauge.noise.metrics(self._base_batch) if self._base_batch else {}),
        }

    def _decide(self) -> str:
        """Rank 0, once a window: what all do after this step."""
        if self._speaker is None:
            return "go"
        self._speaker.say_now_and_then(self)
        if self._speaker.wants_leave():
            return "leave"
        if time.monotonic() - self._saved_s >= self.world.checkpoint_every_s:
            return "save"
        if self._balance is not None and self._loader is not None:
            self._proposed = self._balance.propose(self._loader.batch, self._loader.weights)
            return "share" if self._proposed is not None else "go"
        return "go"

    def _carry_out(self, verb: str) -> None:
        if verb == "share":
            self._share_anew()
            return
        leaving = verb == "leave"
        fault = self._save(leaving=leaving)
        self._saved_s = time.monotonic()
        if leaving and not fault:
            self._agreement.part()
            raise SystemExit(LEFT_CODE)
        if fault and self._speaker is not None:
            self._speaker.note(f"the checkpoint after step {self.steps} failed: {fault}; training goes on")
            if leaving:
                self._speaker.decline(f"cannot save: {fault}")
            self._speaker.say(self)

    def _share_anew(self) -> None:
        """Rank 0's weights are everyone's from the next share on."""
        assert self._balance is not None
        assert self._loader is not None
        told = self._agreement.tell(" ".join(map(str, self._proposed or ())))
        self._weights = self._loader.weights = tuple(map(int, told.split()))
        self._loader.plan_again()
        self._balance.changed()
        self._gauge.samples_per_s.clear()

    def _save(self, *, leaving: bool = False) -> str:
        """All ranks save together; returns "" or, on every rank, why it did not work."""
        chances = self._agreement.gather(chance.pack())
        fault = ""
        if self._speaker is not None and self._folder is not None:
            try:
                checkpoint.save(self._folder.checkpoints, self.steps, self._state(chances))
                self._speaker.say(self, left=leaving)
            except OSError as error:
                fault = str(error)
        return self._agreement.tell(fault)

    def _finish(self) -> None:
        if self._folder is not None and (fault := self._save()) and self._speaker is not None:
            self._speaker.note(f"the last checkpoint failed: {fault}")
            self._speaker.say(self)
        self._agreement.part()

    def _take_chance(self) -> None:
        """Restores the random numbers when the loop begins to draw data, past all that a script does before it."""
        if len(self._chances) == self.world.size:
            chance.restore(self._chances[self.world.rank])
        self._chances = []

    def _state(self, chances: list[bytes]) -> dict[str, Any]:
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict() if self._scheduler is not None else None,
            "chances": [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in chances],
            "epoch": self.epoch,
            "steps": self.steps,
            "samples": self.samples,
            "position": self._position,
            "ramp": [self._ramp.start, self._ramp.end, self._ramp.done, self._ramp.length],
            "seed": self._seed,
            "sizes": self._sizes,
            "weights": list(self._weights),
            "noise": [self._gauge.noise.count, self._gauge.noise.sqr, self._gauge.noise.var],
        }

    def _resume(self) -> None:
        """Every rank loads the checkpoint that rank 0 found to be the newest whole one."""
        name = ""
        if self._folder is not None and self.world.rank == 0:
            found, notes = checkpoint.find_whole(self._folder.checkpoints)
            name = found.name if found is not None else ""
            if self._speaker is not None:
                self._speaker.notes += notes
        name = self._agreement.tell(name)
        if not name or self._folder is None:
            chance.derive(self._seed, self.world.rank, 0)
            return
        state = checkpoint.load(self._folder.checkpoints / name)
        self._restore(state, name)

    def _restore(self, state: dict[str, Any], name: str) -> None:
        try:
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            if self._scheduler is not None and state["scheduler"] is not None:
                self._scheduler.load_state_dict(state["scheduler"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise Failed(
                f"{name} does not fit this script: {error}",
                hint="was the model or the optimizer changed? then start with another run folder (--dir)",
            ) from error
        self.epoch, self.steps, self.samples = state["epoch"], state["steps"], state["samples"]
        self._position, self._sizes, self._seed = state["position"], state["sizes"], state["seed"]
        self._ramp = Ramp(*state["ramp"])
        self._weights = tuple(state.get("weights", ()))
        self._gauge.noise = NoiseScale(*state.get("noise", ()))
        self._chances = [saved.numpy().tobytes() for saved in state["chances"]]
        chance.derive(self._seed, self.world.rank, self.steps)
