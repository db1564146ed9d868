"""The learning rate follows the batch: a factor on the script's own rate, reached by a ramp.

The ramp is the one of the ONES artifact: lr(s) = lr_old + (lr_new - lr_old) · s / S, with s the steps since the change
and S the steps of one epoch. Going up at once would undo what the warm-up of large batches is for (Goyal et al. 2017).
"""

import contextlib
from collections.abc import Iterator

import msgspec
import torch


class Ramp(msgspec.Struct, frozen=True):
    """A factor that goes from `start` to `end` while `done` samples of `length` pass (samples, for steps change)."""

    start: float = 1.0
    end: float = 1.0
    done: int = 0
    length: int = 1

    @property
    def factor(self) -> float:
        """The factor for the next step."""
        return self.start + (self.end - self.start) * min(self.done / self.length, 1.0)

    def after(self, samples: int) -> "Ramp":
        """The ramp after `samples` more."""
        if self.done == self.length:
            return self
        return Ramp(self.start, self.end, min(self.done + samples, self.length), self.length)

    def towards(self, end: float, length: int) -> "Ramp":
        """A new ramp from where this one stands; this very one if that is where it leads already."""
        return self if end == self.end else Ramp(self.factor, end, 0, max(length, 1))


def scaled(optimizer: torch.optim.Optimizer, factor: float) -> contextlib.AbstractContextManager[None]:
    """Within the block the optimizer's rates are `factor` times the script's; any scheduler sees its own numbers."""
    return _AS_THEY_ARE if factor == 1.0 else _scaled(optimizer, factor)


_AS_THEY_ARE = contextlib.nullcontext()


@contextlib.contextmanager
def _scaled(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    own = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, own, strict=True):
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, own, strict=True):
            group["lr"] = rate
