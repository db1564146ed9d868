"""A backward in two halves: the gradient of the inputs, which others wait for, and later that of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

try:  # private in torch 2.13: keeps the gradients between the layers, so that the second half does not repeat them
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
except ImportError:
    stage_backward_input = stage_backward_weight = None  # type: ignore[assignment]


class SplitBackward:
    """Keeps what one micro-batch needs between the two halves of a block's backward.

    With a torch that lacks the functions above, each half is a pass over the graph for its own gradients, and the
    second repeats those between the layers.
    """

    def __init__(
        self, output: torch.Tensor, slope: torch.Tensor, inputs: Sequence[torch.Tensor], module: nn.Module
    ) -> None:
        self._output, self._slope, self._inputs = output, slope, list(inputs)
        self._weights = [p for p in module.parameters() if p.requires_grad]
        self._groups: list[dict[str, Any]] | None = None

    def input_gradients(self) -> Sequence[torch.Tensor | None]:
        """Gradients of the inputs; what the weights need stays."""
        if not self._inputs or not self._output.requires_grad:
            return [None] * len(self._inputs)
        if stage_backward_input is None:
            return torch.autograd.grad(
                self._output, self._inputs, self._slope, retain_graph=bool(self._weights), allow_unused=True
            )
        gradients, self._groups = stage_backward_input([self._output], [self._slope], self._inputs, iter(self._weights))
        return gradients

    def weight_gradients(self) -> None:
        """Add the gradients of the weights to their `grad`, and let the rest go."""
        if not self._weights:
            return
        if self._groups is not None:
            stage_backward_weight(iter(self._weights), self._groups)
        elif self._output.requires_grad:
            torch.autograd.backward(self._output, self._slope, inputs=self._weights)
