"""A training whose loop belongs to a framework: what Lightning's and Hugging Face's callbacks share.

The framework computes, saves and restores in its own way. A guest adds what it does not know: batch and rate by the
plan, the agreement on the step at which all ranks save or leave, and rank 0's word in the run folder.
"""

import atexit
import time
from typing import Any

import torch

from ones_slurm.elastic.agreement import Agreement
from ones_slurm.elastic.rates import Ramp
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder
from ones_slurm.elastic.speaker import Speaker
from ones_slurm.elastic.world import join, leave
from ones_slurm.model.errors import UsageError


class Guest:
    """One rank's part, for one generation. `base_batch` is the global batch that the script's rate was chosen for."""

    def __init__(self, base_batch: int) -> None:
        if base_batch < 1:
            raise UsageError(f"batch_size must be at least 1, not {base_batch}")
        self.world = join()
        atexit.register(leave)
        self.batch, self.base_batch = self.world.batch or base_batch, base_batch
        self.epoch = self.steps = self.samples = 0
        self.last_loss: float | None = None
        self.measured: dict[str, float] = {}
        self.ramp = Ramp()
        self.folder = RunFolder(self.world.folder) if self.world.folder is not None else None
        self.speaker = Speaker(self.folder, self.world) if self.folder is not None and self.world.rank == 0 else None
        self.agreement = Agreement(self.world.store, self.world.rank, self.world.size, self._decide)
        self._saved_s = time.monotonic()
        self._declined: int | None = None

    def begin(self, *, epoch_samples: int, epochs: int | None) -> None:
        """What was restored is restored; training goes on from here."""
        self.ramp = self.ramp.towards(self.world.lr_scale, epoch_samples)
        if self.steps == 0:
            # Nothing was trained at another rate yet, so there is nothing to be gentle with.
            self.ramp = Ramp(self.world.lr_scale, self.world.lr_scale)
        if self.speaker is not None:
            self.speaker.begin(self, batch=self.batch, base_batch=self.base_batch)
            self.speaker.total_samples = epochs * epoch_samples if epochs is not None else None

    def guide(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on the optimizer's steps go by the plan's rate; any scheduler sees the script's own numbers."""
        own: list[float] = []

        def before(stepping: torch.optim.Optimizer, *_: Any) -> None:
            own[:] = [group["lr"] for group in stepping.param_groups]
            for group in stepping.param_groups:
                group["lr"] = group["lr"] * self.ramp.factor

        def after(stepping: torch.optim.Optimizer, *_: Any) -> None:
            for group, rate in zip(stepping.param_groups, own, strict=True):
                group["lr"] = rate

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)

    def count(self, samples: int) -> None:
        """A step of so many samples was made."""
        self.steps += 1
        self.samples += samples
        self.ramp = self.ramp.after(samples)

    def newest(self, name: str) -> str:
        """The checkpoint that rank 0 found, on every rank: a name, "" for none."""
        return self.agreement.tell(name)

    def saved(self, fault: str = "", *, leaving: bool = False) -> None:
        """All ranks have saved, or rank 0 could not: `fault` says why. Leaving ends the process here (exit code 75)."""
        self._saved_s = time.monotonic()
        self.agreement.gather(b"")
        if self.speaker is not None and not fault:
            try:
                self.speaker.say(self, left=leaving)
            except OSError as error:
                fault = str(error)
        fault = self.agreement.tell(fault)
        if leaving and not fault:
            self.agreement.part()
            raise SystemExit(LEFT_CODE)
        if fault and self.speaker is not None:
            self.speaker.note(f"the checkpoint after step {self.steps} failed: {fault}; training goes on")
            if leaving:
                self._decline(f"cannot save: {fault}")
            self.speaker.say(self)

    def finish(self) -> None:
        """The training has come to its end."""
        if self.speaker is not None:
            self.speaker.say(self)
        self.agreement.part()

    def state(self) -> dict[str, Any]:
        """What the next generation has to know, in plain numbers."""
        ramp = [self.ramp.start, self.ramp.end, self.ramp.done, self.ramp.length]
        return {"epoch": self.epoch, "steps": self.steps, "samples": self.samples, "ramp": ramp}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        self.epoch, self.steps, self.samples = state["epoch"], state["steps"], state["samples"]
        self.ramp = Ramp(*state["ramp"])

    def _decide(self) -> str:
        if self.speaker is None:
            return "go"
        self.speaker.say_now_and_then(self)
        if self._ordered():
            return "leave"
        return "save" if time.monotonic() - self._saved_s >= self.world.checkpoint_every_s else "go"

    def _ordered(self) -> bool:
        """Whether there is an order to leave that was not declined. Once the wrapper took it away, that is history."""
        order = self.folder.read_order() if self.folder is not None and self.folder.order_path.exists() else None
        self._declined = None if order is None else self._declined
        return order is not None and order.generation != self._declined

    def _decline(self, reason: str) -> None:
        order = self.folder.read_order() if self.folder is not None else None
        if order is not None and self.speaker is not None:
            self._declined = order.generation
            self.speaker.decline(reason)
