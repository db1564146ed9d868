"""Jobs of which a trace tells no more than how long they ran on how many GPUs."""

from ones_slurm.model.cluster import Speed
from ones_slurm.model.wire import Progress
from ones_slurm.sim.truth import Shape


class FixedRun:
    """`duration_s` seconds on `gpus` GPUs; its work is counted in GPU-seconds.

    On any other number it is as fast as that number allows. That is wrong for a training that scales badly, so only
    workloads whose jobs keep their size should be judged by it.
    """

    def __init__(self, duration_s: float, gpus: int) -> None:
        self.total = duration_s * gpus
        self.work = 0.0
        self._gpus = 0

    def begin(self, shape: Shape, batch: int) -> None:  # noqa: ARG002 -- has no batch
        self._gpus = sum(shape)

    def until_turn_s(self) -> float:
        return (self.total - self.work) / self._gpus if self._gpus else float("inf")

    def advance(self, seconds: float) -> None:
        self.work = min(self.work + seconds * self._gpus, self.total)

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
        return None

    def measured(self) -> Speed | None:
        return None

    def alone_s(self, gpus: int) -> float:
        return self.total / gpus

    def remaining_s(self, gpus: int) -> float:
        return (self.total - self.work) / gpus
