"""How a job really behaves. Policies and predictors cannot import this; they see what the job reports."""

from typing import Protocol

from ones_slurm.model.cluster import Speed
from ones_slurm.model.wire import Progress

# GPUs on each node that a job holds, in node order.
Shape = tuple[int, ...]


class Truth(Protocol):
    """One job's work. Between two calls its rate is constant, so an imagined clock can jump from one to the next.

    `work` counts what is done, in units of its own; `total` is where it ends.
    """

    work: float
    total: float

    def begin(self, shape: Shape, batch: int) -> None:
        """From now on it trains on these GPUs with this global batch (0: as it likes)."""
        ...

    def until_turn_s(self) -> float:
        """Seconds of training until its rate changes or it ends; infinite when it does not train."""
        ...

    def advance(self, seconds: float) -> None:
        """Trains for so long, at most until the next turn."""
        ...

    def turn(self) -> bool:
        """The turn is reached: an epoch ends. Returns whether the job is finished."""
        ...

    def saved(self) -> object:
        """What a checkpoint holds."""
        ...

    def restore(self, saved: object) -> None:
        """Goes back to a checkpoint."""
        ...

    def batch(self) -> int:
        """The global batch that it trains with; 0 when it has none."""
        ...

    def report(self) -> Progress | None:
        """What it says of itself; None for a job that says nothing."""
        ...

    def measured(self) -> Speed | None:
        """The speed at its present shape, as it measures it; None for a job that measures nothing."""
        ...

    def alone_s(self, gpus: int) -> float:
        """How long all of its work takes on so many GPUs without any pause, at the best constant batch."""
        ...

    def remaining_s(self, gpus: int) -> float:
        """How long what is left takes on so many GPUs without a pause; for policies that may ask an oracle."""
        ...
