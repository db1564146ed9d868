"""Gradients after the last backward: summed over the devices that share weights, averaged over replicas."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from ones_slurm.pipeline.spec import Block, Placement


def weights_of(block: Block) -> str:
    """The name of the parameters that a forward block uses."""
    return block.weights or block.name


class GradientGroups:
    """One group for each set of parameters that lives on more than one rank, made by all ranks in one order.

    Parameters of blocks on one device each are the same everywhere (the two directions of a bidirectional pipeline, a
    tied head). Each device of a block on several has a share of its own, which only its replicas have too.
    """

    def __init__(self, placement: Placement, replicas: int, here: int) -> None:
        self._replicas = replicas
        self._groups: dict[str, dist.ProcessGroup] = {}
        homes: dict[str, set[int]] = {}
        shares: set[str] = set()
        for block in placement.blocks:
            if block.kind == "forward":
                homes.setdefault(weights_of(block), set()).update(block.devices)
                if len(block.devices) > 1:
                    shares.add(weights_of(block))
        for name in sorted(homes):
            teams = [(d,) for d in sorted(homes[name])] if name in shares else [tuple(sorted(homes[name]))]
            for team in teams:
                ranks = [replica * placement.devices + d for replica in range(replicas) for d in team]
                if len(ranks) > 1:
                    group = dist.new_group(ranks)
                    if here in team:
                        self._groups[name] = group

    def reduce(self, modules: Mapping[str, nn.Module]) -> None:
        """Sum and average in place; `modules` by the name of their weights."""
        for name, group in self._groups.items():
            parameters = [p for p in modules[name].parameters() if p.requires_grad]
            if not parameters:
                continue
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(flat, group=group)
            flat /= self._replicas
            pieces = torch.split(flat, [p.numel() for p in parameters])
            for parameter, piece in zip(parameters, pieces, strict=True):
                parameter.grad = piece.view_as(parameter).clone()
