"""A backward in two halves: the gradient of the inputs, which others wait for, and later that of the weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class SplitBackward:
    """Keeps the graph of one forward between its two halves.

    Each half is a pass over the graph that computes only what it is for, so that the second repeats the gradients
    between the layers of the block (not those of the weights).
    """

    def __init__(self, output: torch.Tensor, slope: torch.Tensor, inputs: Sequence[torch.Tensor], module: nn.Module):
        self._output, self._slope, self._inputs = output, slope, inputs
        self._weights = [p for p in module.parameters() if p.requires_grad]

    def input_gradients(self) -> Sequence[torch.Tensor | None]:
        """Gradients of the inputs; the graph stays."""
        if not self._inputs or not self._output.requires_grad:
            return [None] * len(self._inputs)
        return torch.autograd.grad(
            self._output, self._inputs, self._slope, retain_graph=bool(self._weights), allow_unused=True
        )

    def weight_gradients(self) -> None:
        """Add the gradients of the weights to their `grad`, and let the graph go."""
        if self._weights and self._output.requires_grad:
            torch.autograd.backward(self._output, self._slope, inputs=self._weights)
