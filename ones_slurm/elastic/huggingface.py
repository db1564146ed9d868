"""Hugging Face's Trainer as an elastic job: a callback, and the arguments that fit the allocation.

    elastic = ElasticCallback(batch_size=64)
    arguments = TrainingArguments(num_train_epochs=3, learning_rate=5e-4, **elastic.arguments(len(train_set)))
    trainer = Trainer(model, arguments, train_dataset=train_set, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.checkpoint())

The Trainer saves and restores its own state. It goes on by a number of steps, which leads to the same sample as long as
the batch is the same, whatever the world; when the plan changes the batch, the number is converted, and up to one batch
is trained on again. Needs the extra `hf`.
"""
# ruff: noqa: ARG002 - the hooks' arguments are the Trainer's

import json
import math
import os
import pathlib
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ones_slurm.elastic.guest import Guest
from ones_slurm.elastic.world import World
from ones_slurm.model.errors import UsageError

# Written into a checkpoint of the Trainer when all ranks have written their part of it.
_WHOLE = "ones.json"


class ElasticCallback(TrainerCallback):
    """`batch_size` is the global batch, over all ranks, that the script's learning rate was chosen for.

    `max_local_batch` is how many samples fit on a rank; more are accumulated. After any step all ranks may save or
    leave; leaving raises SystemExit(75).
    """

    def __init__(self, batch_size: int, *, max_local_batch: int | None = None) -> None:
        self._guest = Guest(batch_size)
        size = self._guest.world.size
        part = math.ceil(self._guest.batch / size)
        self._passes = math.ceil(part / max_local_batch) if max_local_batch else 1
        self._local = math.ceil(part / self._passes)
        if max_local_batch:
            self._guest.measured["max_local_batch"] = float(max_local_batch)
        # The Trainer's ranks all have the same part.
        self._batch = self._guest.batch = self._local * self._passes * size
        self._samples = 0
        self._leaving = False

    @property
    def world(self) -> World:
        """The world of this generation."""
        return self._guest.world

    def arguments(self, samples: int) -> dict[str, Any]:
        """The part of `TrainingArguments` that the plan and the allocation decide; `samples` is the training set's."""
        if samples < self.world.size:
            raise UsageError(f"the dataset has {samples} samples, fewer than the {self.world.size} ranks")
        self._samples = samples
        folder = self._guest.folder
        return {
            "output_dir": str(folder.checkpoints) if folder is not None else "trainer_output",
            "per_device_train_batch_size": self._local,
            "gradient_accumulation_steps": self._passes,
            "save_strategy": "no",  # when to save is agreed on by all ranks
            "save_total_limit": 2,
            "use_cpu": self.world.device.type == "cpu",
        }

    def checkpoint(self) -> str | None:
        """The newest whole checkpoint of the run folder, for `train(resume_from_checkpoint=)`."""
        folder, name = self._guest.folder, ""
        if folder is not None and self.world.rank == 0:
            whole = [path.parent for path in folder.checkpoints.glob(f"checkpoint-*/{_WHOLE}")]
            whole.sort(key=lambda path: int(path.name.removeprefix("checkpoint-")))
            if whole:
                self._convert(whole[-1])
                name = whole[-1].name
        name = self._guest.newest(name)
        if not name or folder is None:
            return None
        self._guest.restore(json.loads((folder.checkpoints / name / _WHOLE).read_text())["guest"])
        return str(folder.checkpoints / name)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Everything is restored."""
        if not self._samples:
            raise UsageError("the Trainer has not got the plan", hint="TrainingArguments(**elastic.arguments(…))")
        optimizer = kwargs["optimizer"]
        self._guest.guide(getattr(optimizer, "optimizer", optimizer))
        kwargs["lr_scheduler"].last_epoch = state.global_step  # as converted
        self._guest.begin(epoch_samples=self._samples, epochs=int(args.num_train_epochs))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """What the Trainer logs is the job's progress."""
        said = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, (int, float))}
        self._guest.last_loss = said.pop("loss", self._guest.last_loss)
        if self._guest.speaker is not None:
            self._guest.speaker.metrics.update(said)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Counts the step, and lets the Trainer save when all ranks agreed on it."""
        guest = self._guest
        in_epoch = (state.global_step - 1) % self._steps_an_epoch() * self._batch
        guest.count(min(self._batch, self._samples - in_epoch))
        guest.epoch = int(state.epoch or 0)
        if state.global_step >= state.max_steps:
            return
        verb = guest.agreement.after_step()
        if verb != "go" and guest.folder is not None:
            control.should_save = True
            self._leaving = verb == "leave"

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """This rank has written its part."""
        guest = self._guest
        guest.agreement.gather(b"")
        if guest.speaker is not None and guest.folder is not None:
            whole = {"step": state.global_step, "batch": self._batch, "samples": self._samples, "guest": guest.state()}
            whole["steps_an_epoch"] = self._steps_an_epoch()
            _write(guest.folder.checkpoints / f"checkpoint-{state.global_step}" / _WHOLE, json.dumps(whole))
        guest.saved(leaving=self._leaving)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The last word."""
        self._guest.finish()

    def _steps_an_epoch(self) -> int:
        """As the Trainer counts them."""
        batches = math.ceil(math.ceil(self._samples / self._local) / self.world.size)
        return math.ceil(batches / self._passes)

    def _convert(self, path: pathlib.Path) -> None:
        """Rank 0: the number of steps in a checkpoint becomes one of steps of the present batch."""
        if not self._samples:
            raise UsageError("the Trainer has not got the plan", hint="call arguments() before checkpoint()")
        whole = json.loads((path / _WHOLE).read_text())
        epoch, step = divmod(whole["step"], whole["steps_an_epoch"])
        converted = epoch * self._steps_an_epoch() + step * whole["batch"] // self._batch
        state = json.loads((path / "trainer_state.json").read_text())
        if state["global_step"] != converted:
            _write(path / "trainer_state.json", json.dumps({**state, "global_step": converted}))


def _write(path: pathlib.Path, text: str) -> None:
    aside = path.with_name(path.name + ".new")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
