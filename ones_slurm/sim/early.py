"""The truth of a training that ends by itself: nobody, not even its user, knows after how many epochs."""

import math

from ones_slurm.model.cluster import Speed
from ones_slurm.model.wire import Progress
from ones_slurm.sim.application import spread
from ones_slurm.sim.recipes import STEP_OF_ACCURACY, Recipe, accuracy, loss, step_times, worth
from ones_slurm.sim.truth import Shape


class EarlyStopped:
    """One run of a recipe. Work is counted in samples of the data set; what was learnt, beside it.

    An epoch always has `epoch_samples`; with a large batch each of them teaches less, so more epochs are needed.
    """

    def __init__(self, recipe: Recipe, epoch_samples: int) -> None:
        self._recipe, self._epoch_samples = recipe, epoch_samples
        self.work = 0.0
        self.total = math.inf  # it is over when it is over
        self._learnt = 0.0  # in epochs at the base batch
        self._epoch = 0
        self._best = 0.0
        self._calm = 0  # epochs in a row without a gain, or at the target
        self._shape: Shape = ()
        self._batch = 0
        self._rate = 0.0

    def begin(self, shape: Shape, batch: int) -> None:
        self._shape = shape
        gpus = sum(shape)
        wanted = min(batch or self._recipe.base_batch * gpus, self._recipe.max_batch)
        self._batch = max(wanted // gpus, 1) * gpus if gpus else 0
        step_s, _ = step_times(self._recipe, len(shape), gpus, self._batch // gpus) if gpus else (math.inf, 0.0)
        self._rate = self._batch / step_s

    def until_turn_s(self) -> float:
        return ((self._epoch + 1) * self._epoch_samples - self.work) / self._rate if self._rate else math.inf

    def advance(self, seconds: float) -> None:
        samples = min(seconds * self._rate, (self._epoch + 1) * self._epoch_samples - self.work)
        self.work += samples
        self._learnt += samples / self._epoch_samples * worth(self._recipe, self._batch)

    def turn(self) -> bool:
        self._epoch += 1
        self.work = float(self._epoch * self._epoch_samples)
        reached = accuracy(self._recipe, self._learnt)
        calm = reached >= self._recipe.target or reached < self._best + STEP_OF_ACCURACY
        self._calm = self._calm + 1 if calm else 0
        self._best = reached if reached >= self._best + STEP_OF_ACCURACY else self._best
        if self._calm < self._recipe.patience:
            return False
        self._rate = 0.0
        return True

    def saved(self) -> tuple[float, float, int, float, int]:
        return self.work, self._learnt, self._epoch, self._best, self._calm

    def restore(self, saved: object) -> None:
        self.work, self._learnt, self._epoch, self._best, self._calm = saved  # type: ignore[misc]

    def batch(self) -> int:
        return self._batch

    def report(self) -> Progress:
        return Progress(
            epoch=self._epoch,
            samples=int(self.work),
            samples_per_s=self._rate,
            loss=loss(self._recipe, self._learnt),
            base_batch=self._recipe.base_batch,
            metrics={"accuracy": accuracy(self._recipe, self._learnt), "epoch_samples": float(self._epoch_samples)},
        )

    def measured(self) -> Speed | None:
        gpus = sum(self._shape)
        if not gpus:
            return None
        local = self._batch // gpus
        return Speed(len(self._shape), gpus, local, *step_times(self._recipe, len(self._shape), gpus, local))

    def alone_s(self, gpus: int) -> float:
        return EarlyStopped(self._recipe, self._epoch_samples).remaining_s(gpus)

    def remaining_s(self, gpus: int) -> float:
        """At the batch that the linear rule gives on so many GPUs."""
        twin = EarlyStopped(self._recipe, self._epoch_samples)
        twin.restore(self.saved())
        twin.begin(spread(gpus), 0)
        spent_s = 0.0
        while True:
            until_s = twin.until_turn_s()
            twin.advance(until_s)
            spent_s += until_s
            if twin.turn():
                return spent_s
