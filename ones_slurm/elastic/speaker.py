"""Rank 0's side of the run folder: it says how far the training is, and hears what is wanted."""

import math
import time
from typing import Protocol

from ones_slurm.elastic.formation import Formation
from ones_slurm.elastic.runfolder import RunFolder, Wanted, Word
from ones_slurm.elastic.world import World
from ones_slurm.model.wire import Declined, Progress

# Ours: people look at progress by the second; a small file written that often costs no file system anything.
_SAY_EVERY_S = 1.0
_MOST_NOTES = 16
_MOST_METRICS = 32


class Trained(Protocol):
    """What is said of a job."""

    epoch: int
    steps: int
    samples: int

    @property
    def last_loss(self) -> float | None: ...
    @property
    def measured(self) -> dict[str, float]: ...


class Speaker:
    """Exists on rank 0 only."""

    def __init__(self, folder: RunFolder, world: World, formation: Formation | None = None) -> None:
        self._folder, self._world, self._formation = folder, world, formation
        self.metrics: dict[str, float] = {}
        self.notes: list[str] = []
        self.total_samples: int | None = None
        self._batch = self._first_step = self._first_samples = 0
        self._base_batch: int | None = None
        self._declined: Declined | None = None
        self._said_s = time.monotonic()
        self._said_samples: int | None = None
        self._samples_per_s = 0.0

    def begin(self, job: Trained, *, batch: int, base_batch: int) -> None:
        """Where this generation begins, its batch, and the one that the script was tuned for."""
        self._first_step, self._first_samples = job.steps, job.samples
        self._batch, self._base_batch = batch, base_batch

    def wanted(self) -> Wanted | None:
        """The standing order, if it was not declined. Once the wrapper took it away, that is history."""
        if not self._folder.order_path.exists():
            self._declined = None
            return None
        order = self._folder.read_order()
        if order is None or (self._declined is not None and order.generation == self._declined.generation):
            return None
        return order

    def decline(self, reason: str) -> None:
        """The standing order cannot be followed."""
        order = self._folder.read_order()
        if order is not None:
            self._declined = Declined(order.generation, reason[:1024])

    def note(self, text: str) -> None:
        """Something that a person should hear of."""
        self.notes = [*self.notes, text[:1024]][-_MOST_NOTES:]

    def say_now_and_then(self, job: Trained) -> None:
        """Says how far the training is, if that is a while ago."""
        if time.monotonic() - self._said_s >= _SAY_EVERY_S or self._said_samples is None:
            self.say(job)

    def say(self, job: Trained, *, left: bool = False, finished: bool = False) -> None:
        """Writes rank 0's word. A full disk must not end the training, so then nothing is said."""
        now_s = time.monotonic()
        if self._said_samples is not None and job.samples > self._said_samples:
            self._samples_per_s = (job.samples - self._said_samples) / max(now_s - self._said_s, 1e-3)
        self._said_s, self._said_samples = now_s, job.samples
        metrics = {**job.measured, **self.metrics}
        word = Word(
            generation=self._world.generation,
            first_step=self._first_step,
            first_samples=self._first_samples,
            batch=self._batch,
            left=left,
            finished=finished,
            live=self._formation is not None,
            formation=self._formation.number if self._formation is not None else 0,
            ranks=self._world.size,
            nodes=self._formation.nodes if self._formation is not None else (),
            why=self._formation.why if self._formation is not None else "",
            declined=self._declined,
            notes=tuple(self.notes),
            progress=Progress(
                epoch=job.epoch,
                step=job.steps,
                samples=job.samples,
                total_samples=self.total_samples,
                samples_per_s=self._samples_per_s,
                loss=job.last_loss,
                base_batch=self._base_batch,
                metrics=dict([(k, v) for k, v in metrics.items() if math.isfinite(v)][:_MOST_METRICS]),
            ),
        )
        try:
            self._folder.write_word(word)
        except OSError:
            if left:
                raise
