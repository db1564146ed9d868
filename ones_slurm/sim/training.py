"""The truth of an elastic training: an application on some GPUs, epoch by epoch."""

import math

from ones_slurm.model.cluster import Speed
from ones_slurm.model.wire import Progress
from ones_slurm.sim.application import Application, spread
from ones_slurm.sim.truth import Shape


class Training:
    """One run of an application to its last epoch. Work is counted in steps of the initial batch.

    An epoch ends at a whole second of training, as in the simulator that the reference values come from: over a hundred
    short epochs that decides who comes first, and shifts average completion times by up to one per cent.

    It reports its progress in samples that are worth one of the initial batch each, so that progress and rate agree at
    every batch size, and its last measurement: times of a step, the gradient's squared norm and variance.
    """

    def __init__(self, application: Application, tuned_batch: int = 0) -> None:
        self._app, self._tuned = application, tuned_batch
        self.work = 0.0
        self.total = application.goals[-1]
        self._epoch = 0
        self._shape: Shape = ()
        self._asked = 0
        self._batch = 0
        self._pace = 0.0

    def begin(self, shape: Shape, batch: int) -> None:
        self._shape, self._asked = shape, batch
        self._settle()

    def until_turn_s(self) -> float:
        return float(round((self._app.goals[self._epoch] - self.work) / self._pace)) if self._pace else math.inf

    def advance(self, seconds: float) -> None:
        if self._pace:
            self.work = min(self.work + seconds * self._pace, self._app.goals[self._epoch])

    def turn(self) -> bool:
        self.work = self._app.goals[self._epoch]
        self._epoch += 1
        if self._epoch == len(self._app.goals):
            self._pace = 0.0
            return True
        self._settle()
        return False

    def saved(self) -> tuple[int, float]:
        return self._epoch, self.work

    def restore(self, saved: object) -> None:
        self._epoch, self.work = saved  # type: ignore[misc]
        self._settle()

    def batch(self) -> int:
        return self._batch

    def report(self) -> Progress:
        app = self._app
        metrics = {"epochs": float(len(app.goals)), "max_batch": app.max_batch}
        metrics |= {"min_local_batch": app.min_local, "max_local_batch": app.max_local}
        if self._batch:
            metrics["grad_sqr"], metrics["grad_var"] = app.gradient(self._batch, min(self._epoch, len(app.goals) - 1))
        return Progress(
            epoch=self._epoch,
            step=int(self.work),
            samples=int(self.work * app.base_batch),
            total_samples=int(self.total * app.base_batch),
            samples_per_s=self._pace * app.base_batch,
            base_batch=app.base_batch,
            metrics=metrics,
        )

    def measured(self) -> Speed | None:
        if not self._shape:
            return None
        gpus = sum(self._shape)
        local, _ = self._app.split(gpus, self._batch)
        step_s, sync_s = self._app.step_times(self._shape, local)
        return Speed(len(self._shape), gpus, local, step_s, sync_s)

    def alone_s(self, gpus: int) -> float:
        return self._app.alone_s(gpus)

    def remaining_s(self, gpus: int) -> float:
        """At the tuned batch, or else the best one on so many GPUs; within an epoch in proportion."""
        app, epoch = self._app, self._epoch
        begun = app.goals[epoch - 1] if epoch else 0.0
        share = (app.goals[epoch] - self.work) / (app.goals[epoch] - begun)
        return app.left_s(spread(gpus), self._tuned, epoch, share)

    def _settle(self) -> None:
        if not self._shape:
            self._pace, self._batch = 0.0, 0
            return
        gpus = sum(self._shape)
        asked = self._asked or max(self._app.base_batch, self._app.min_local * gpus)
        self._pace, self._batch = self._app.pace(self._shape, asked, self._epoch)
