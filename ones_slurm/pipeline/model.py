"""A model made of a placement's blocks: one object that trains in one piece, in a pipeline, and is saved as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ones_slurm.pipeline.lanes import traffic_of
from ones_slurm.pipeline.reduction import weights_of
from ones_slurm.pipeline.spec import Block, Placement


class PipelineModel(nn.Module):
    """All parts of all blocks. `make(block, share)` builds the part of a forward block on its device number `share`.

    Blocks with the same `weights` get the same part. Called with a micro-batch it gives the loss in one piece, which is
    what a pipeline's gradients are compared with, and what runs on a laptop.
    """

    def __init__(self, placement: Placement, make: Callable[[Block, int], nn.Module]) -> None:
        super().__init__()
        self.placement = placement
        self.parts = nn.ModuleDict()
        self._traffic = traffic_of(placement)
        for i in self._traffic.inputs:
            block = placement.blocks[i]
            for share in range(len(block.devices)):
                if self._key(block, share) not in self.parts:
                    self.parts[self._key(block, share)] = make(block, share)

    def on(self, device: int) -> dict[str, nn.Module]:
        """The parts of one device by block, as the executor wants them."""
        blocks = [self.placement.blocks[i] for i in self._traffic.inputs]
        return {
            block.name: self.parts[self._key(block, block.devices.index(device))]
            for block in blocks
            if device in block.devices
        }

    def owners(self) -> dict[str, int]:
        """The first device that has each part."""
        found: dict[str, int] = {}
        for i in self._traffic.inputs:
            block = self.placement.blocks[i]
            for share, d in enumerate(block.devices):
                key = self._key(block, share)
                found[key] = min(found.get(key, d), d)
        return found

    def forward(self, micro_batch: Any) -> torch.Tensor:
        """The sum of the losses of one micro-batch."""
        values: dict[int, torch.Tensor] = {}
        losses = []
        for i, needs in sorted(self._traffic.inputs.items()):
            block = self.placement.blocks[i]
            inputs = [values[p] for p in needs]
            shares = [self.parts[self._key(block, s)](micro_batch, *inputs) for s in range(len(block.devices))]
            values[i] = shares[0] if len(shares) == 1 else torch.stack(shares).sum(0)
            if not self._traffic.users[i]:
                losses.append(values[i])
        return torch.stack(losses).sum()

    @staticmethod
    def _key(block: Block, share: int) -> str:
        return f"{weights_of(block)}@{share}" if len(block.devices) > 1 else weights_of(block)
