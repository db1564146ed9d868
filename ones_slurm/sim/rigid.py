"""Jobs of which a trace tells no more than how long they ran on how many GPUs."""

import math

from ones_slurm.model.cluster import Speed
from ones_slurm.model.wire import Progress
from ones_slurm.sim.truth import Shape

# Speed on n GPUs goes like n to this power where nobody knows better: between the well and the badly scaling
# applications of the Pollux profiles up to 16 GPUs (ours).
EXPONENT = 0.8
# A job that talks counts its work in so many samples.
SAMPLES = 1_000_000


class TracedRun:
    """A job that takes `duration_s` on `gpus` GPUs, and on n of them (gpus/n)^0.8 times as long.

    The exponent is a guess and only matters for jobs that change their size; only such jobs talk.
    """

    def __init__(self, duration_s: float, gpus: int, *, talks: bool = False) -> None:
        self.total = duration_s  # in seconds on `gpus` GPUs
        self.work = 0.0
        self._gpus, self._talks = gpus, talks
        self._shape: Shape = ()
        self._rate = 0.0

    def begin(self, shape: Shape, batch: int) -> None:  # noqa: ARG002 -- has no batch
        self._shape = shape
        self._rate = self._rate_on(sum(shape))

    def until_turn_s(self) -> float:
        return (self.total - self.work) / self._rate if self._rate else math.inf

    def advance(self, seconds: float) -> None:
        self.work = min(self.work + seconds * self._rate, self.total)

    def turn(self) -> bool:
        self.work = self.total
        return True

    def saved(self) -> float:
        return self.work

    def restore(self, saved: object) -> None:
        assert isinstance(saved, float)
        self.work = saved

    def batch(self) -> int:
        return 0

    def report(self) -> Progress | None:
        if not self._talks:
            return None
        per_s = SAMPLES / self.total
        return Progress(samples=int(self.work * per_s), total_samples=SAMPLES, samples_per_s=self._rate * per_s)

    def measured(self) -> Speed | None:
        """As if a step took one sample on each GPU, and what is not ideal were exchange of gradients."""
        gpus = sum(self._shape)
        if not (self._talks and gpus):
            return None
        step_s = self.total / SAMPLES * gpus / self._rate
        return Speed(len(self._shape), gpus, 1, step_s, step_s * (1 - gpus ** (EXPONENT - 1)))

    def alone_s(self, gpus: int) -> float:
        return self.total / self._rate_on(gpus)

    def remaining_s(self, gpus: int) -> float:
        return (self.total - self.work) / self._rate_on(gpus)

    def _rate_on(self, gpus: int) -> float:
        return math.pow(gpus / self._gpus, EXPONENT)
