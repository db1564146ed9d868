"""A small model for every placement: made from the placement alone, so that it can run in a pipeline and in one piece.

Every forward on one device is a linear layer with a tanh; a forward on several is a share of a wide layer on each.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

from ones_slurm.pipeline import Placement, Schedule, split_backward
from ones_slurm.pipeline.chain import chain_runtime, stages_of
from ones_slurm.pipeline.executor import Executor
from ones_slurm.pipeline.lanes import traffic_of

WIDTH = 6
BATCH = 3


class Block(nn.Module):
    """One share of one block; `last` ones give the mean squared difference to the target."""

    def __init__(self, weights: str, *, share: int, last: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(sum(map(ord, weights)) * 31 + share)
        self.last = last
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator) / WIDTH**0.5)
        self.bias = nn.Parameter(torch.randn(WIDTH, dtype=torch.float64, generator=generator))

    def forward(self, micro_batch: dict[str, torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
        given = sum(inputs) if inputs else micro_batch["x"]
        output = torch.tanh(given @ self.weight + self.bias)
        return ((output - micro_batch["y"]) ** 2).mean() if self.last else output


def data(micro_batches: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {key: torch.randn(BATCH, WIDTH, dtype=torch.float64, generator=generator) for key in ("x", "y")}
        for _ in range(micro_batches)
    ]


def modules_for(placement: Placement, device: int | None) -> dict[tuple[str, int], Block]:
    """The modules by (block, device): those of one device, or all; the same object for the same weights on a device."""
    users = traffic_of(placement).users
    made: dict[tuple[str, int], Block] = {}
    found = {}
    for i in users:
        block = placement.blocks[i]
        for share, d in enumerate(block.devices):
            if device in (None, d):
                weights = block.weights or block.name
                key = weights, share if len(block.devices) > 1 else -1
                made.setdefault(key, Block(weights, share=share, last=not users[i]))
                found[block.name, d] = made[key]
    return found


def in_one_piece(placement: Placement, batches: list[dict[str, torch.Tensor]]) -> tuple[float, dict]:
    """Loss and gradients by plain autograd, no pipeline anywhere."""
    modules = modules_for(placement, None)
    traffic = traffic_of(placement)
    total = torch.zeros((), dtype=torch.float64)
    for batch in batches:
        values: dict[int, torch.Tensor] = {}
        for i in sorted(traffic.inputs):
            block = placement.blocks[i]
            inputs = [values[p] for p in traffic.inputs[i]]
            values[i] = sum(modules[block.name, d](batch, *inputs) for d in block.devices)
            if not traffic.users[i]:
                total = total + values[i] / len(batches)
    total.backward()
    return float(total.detach()), {key: (m.weight.grad, m.bias.grad) for key, m in modules.items()}


def train_step(schedule: Schedule, replicas: int = 1, steps: int = 1) -> float:
    """Largest difference of gradients and loss between the pipeline and one piece, on this rank."""
    placement = schedule.placement
    here = dist.get_rank() % placement.devices
    replica = dist.get_rank() // placement.devices
    modules = modules_for(placement, here)
    executor = Executor(schedule, {name: module for (name, _), module in modules.items()})
    n = schedule.micro_batches
    for _ in range(steps):
        for module in modules.values():
            module.zero_grad()
        report = executor.step(data(n * replicas)[replica * n : (replica + 1) * n])
    loss, gradients = in_one_piece(placement, data(n * replicas))
    errors = [abs(report.loss - loss)]
    for (name, d), module in modules.items():
        for got, expected in zip((module.weight.grad, module.bias.grad), gradients[name, d], strict=True):
            errors.append(float((got - expected).abs().max()))
    return max(errors)


def train_steps_without_private_torch(schedules: list[Schedule]) -> list[float]:
    """`train_steps` on a torch that lacks its private halves of the backward."""
    split_backward.stage_backward_input = split_backward.stage_backward_weight = None
    return train_steps(schedules)


def train_steps(schedules: list[Schedule], replicas: int = 1, steps: int = 1) -> list[float]:
    """`train_step` for one schedule after the other, in one world."""
    return [train_step(schedule, replicas, steps) for schedule in schedules]


class Stage(nn.Module):
    """One stage of a chain for torch's runtime, with the same parameters as the block of that name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.block = Block(name, share=0, last=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block({}, x)


def chain_steps(schedules: list[Schedule]) -> list[float]:
    """Largest difference of gradients and loss between torch's runtime and one piece, for each schedule."""
    return [chain_step(schedule) for schedule in schedules]


def chain_step(schedule: Schedule) -> float:
    placement = schedule.placement
    depth = stages_of(placement)
    forwards = [block for block in placement.blocks if block.kind == "forward"]
    mine = {block.name: Stage(block.name) for block in forwards if block.devices == (dist.get_rank(),)}
    stages = [PipelineStage(module, depth[name], len(forwards), torch.device("cpu")) for name, module in mine.items()]
    runtime = chain_runtime(schedule, stages, lambda output, target: ((output - target) ** 2).mean())
    batches = data(schedule.micro_batches)
    losses: list[torch.Tensor] = []
    x, y = (torch.cat([batch[key] for batch in batches]) for key in ("x", "y"))
    first, last = forwards[0].name in mine, forwards[-1].name in mine
    runtime.step(*([x] if first else []), **({"target": y, "losses": losses} if last else {}))
    loss, gradients = in_one_piece(placement, batches)
    errors = [abs(float(torch.stack(losses).mean().detach()) - loss)] if last else []
    for name, stage in mine.items():
        for got, expected in zip(stage.block.parameters(), gradients[name, dist.get_rank()], strict=True):
            errors.append(float((got.grad - expected).abs().max()))
    return max(errors)
