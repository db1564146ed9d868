"""What a half-done step may have changed, as it was at the end of the last whole one.

Parameters and optimizer state change only in the optimizer's step, which follows the last collective. Buffers (the
statistics of BatchNorm, say) and random numbers change in the forward pass already, so they are kept aside.
"""

import torch
from torch import nn

from ones_slurm.elastic import chance


class Boundary:
    """The end of the last whole step. Marking it costs microseconds: one copy of the buffers, and the generators."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [buffer for buffer in model.buffers() if buffer is not None]
        self._kept = [buffer.detach().clone() for buffer in self._buffers]
        self._chance = chance.snapshot()

    def mark(self) -> None:
        """A step is whole."""
        if self._kept:
            with torch.no_grad():
                torch._foreach_copy_(self._kept, self._buffers)
        self._chance = chance.snapshot()

    @torch.no_grad()
    def go_back(self) -> None:
        """The step that began since will be done again."""
        if self._kept:
            torch._foreach_copy_(self._buffers, self._kept)
        chance.go_back(self._chance)
