"""Train with any schedule on torch.distributed: one rank a device, its list run from top to bottom.

A block on several devices computes a share on each; the executor adds the shares up, so that each of them has the
whole output, and adds up the shares of its inputs' gradients on the way back (vocabulary-parallel embeddings, tensor
parallel joins). All other tensors go from rank to rank.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline.lanes import Step, lanes, traffic_of
from ones_slurm.pipeline.reduction import GradientGroups, weights_of
from ones_slurm.pipeline.schedule import Schedule
from ones_slurm.pipeline.split_backward import SplitBackward
from ones_slurm.pipeline.stopwatch import Stopwatch
from ones_slurm.pipeline.transfers import Transfers

Pending = tuple[dist.Work | None, torch.Tensor]
# (forward, None): its output; (forward, user): the gradient of its output that comes from a user.
Tensor = tuple[int, int | None]


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a step gave.

    `loss` is the sum over the blocks that give one, the mean over all micro-batches of all replicas. `peak_held` is
    the most blocks whose activations this rank kept at a time. `outputs` is what this rank's last blocks gave.
    """

    loss: float
    seconds: float
    peak_held: int
    outputs: tuple[torch.Tensor, ...]


class Executor:
    """Runs a schedule on the ranks of the default process group: rank = replica x devices + device.

    `modules` has this device's part of each forward block by name. A module is called as `module(micro_batch,
    *inputs)`: with the micro-batch as it was handed to `step`, and the outputs of the blocks it comes after. It returns
    one tensor, of one shape for all micro-batches; a block that nobody comes after returns the loss, the mean over its
    micro-batch. Blocks with the same `weights` must start with equal parameters. Gradients are left in the
    parameters' `grad`, as after `backward()` on the mean loss, for any optimiser.
    """

    def __init__(self, schedule: Schedule, modules: Mapping[str, nn.Module], device: str = "cpu") -> None:
        placement = schedule.placement
        if dist.get_world_size() % placement.devices:
            raise UsageError(
                f"{dist.get_world_size()} ranks for a pipeline of {placement.devices} devices",
                hint="start as many ranks as devices, times the number of replicas",
            )
        self.schedule = schedule
        self.replica, self.here = divmod(dist.get_rank(), placement.devices)
        self.replicas = dist.get_world_size() // placement.devices
        self._device = torch.device(device)
        self._traffic = traffic_of(placement)
        self._blocks = placement.blocks
        self._position = {block.name: i for i, block in enumerate(placement.blocks)}
        self._modules = self._mine(modules)
        lists = lanes(schedule)
        self._steps = lists[self.here]
        self._watch = Stopwatch(self._device)
        self._transfers = Transfers(placement, lists, self.replicas, self._device)
        self._gradients = GradientGroups(placement, self.replicas, self.here)
        # How often a tensor is used on this rank for each micro-batch; after the last use it can go.
        self._uses = Counter[Tensor]()
        for step in self._steps:
            if step.micro_batch == 0:
                self._uses.update(self._needed_by(step))
        self._clear()

    @property
    def training(self) -> bool:
        """Whether the schedule has backwards."""
        return bool(self._traffic.gradient)

    def step(self, micro_batches: Sequence[Any]) -> StepReport:
        """All micro-batches forward and backward; when it returns, gradients are reduced over replicas."""
        if len(micro_batches) != self.schedule.micro_batches:
            raise UsageError(
                f"{len(micro_batches)} micro-batches for a schedule of {self.schedule.micro_batches}",
                hint="search a schedule for this number",
            )
        began_s = time.perf_counter()
        self._clear()
        self._watch.next_step()
        for step in self._steps:
            n, flow = step.micro_batch, step.flow
            if step.do == "run":
                self._run(step.block, n, micro_batches[n])
            elif step.do == "send" and flow is not None:
                self._transfers.send(flow, step.peer, self._take((flow.of, flow.via), n))
            elif flow is not None:
                like = None if flow.via is None else self._saved[flow.of, n][1]
                self._keep((flow.of, flow.via), n, self._transfers.receive(flow, step.peer, like))
        self._transfers.finish()
        if self.training:
            self._gradients.reduce({weights_of(self._blocks[i]): module for i, module in self._modules.items()})
        loss = self._mean_loss()
        seconds = time.perf_counter() - began_s
        return StepReport(loss=loss, seconds=seconds, peak_held=self._peak_held, outputs=tuple(self._outputs))

    def block_times_us(self) -> dict[str, float]:
        """What the blocks of this device took lately, by name."""
        return {self._blocks[i].name: took for i, took in self._watch.medians_us().items()}

    def _mine(self, modules: Mapping[str, nn.Module]) -> dict[int, nn.Module]:
        mine = [i for i in self._traffic.inputs if self.here in self._blocks[i].devices]
        missing = [self._blocks[i].name for i in mine if self._blocks[i].name not in modules]
        if missing:
            raise UsageError(f"device {self.here} has no module for block {missing[0]!r}", hint="see `modules`")
        return {i: modules[self._blocks[i].name] for i in mine}

    def _needed_by(self, step: Step) -> list[Tensor]:
        """What a step takes from the tensors that are kept."""
        if step.do == "receive":
            return []
        if step.flow is not None:
            return [(step.flow.of, step.flow.via)]
        block = self._blocks[step.block]
        if block.kind == "forward":
            return [(p, None) for p in self._traffic.inputs[step.block]]
        forward = self._position[block.of]
        wanted = self._traffic.gradient[forward] == step.block
        return [(forward, user) for user in self._traffic.users[forward]] if wanted else []

    def _clear(self) -> None:
        self._kept: dict[tuple[Tensor, int], Pending] = {}
        self._left: dict[tuple[Tensor, int], int] = {}  # uses to come
        self._saved: dict[tuple[int, int], tuple[list[torch.Tensor], torch.Tensor]] = {}
        self._halves: dict[tuple[int, int], SplitBackward] = {}
        self._outputs: list[torch.Tensor] = []
        self._loss = torch.zeros((), dtype=torch.float64, device=self._device)
        self._held = self._peak_held = 0

    def _run(self, i: int, n: int, micro_batch: Any) -> None:
        block = self._blocks[i]
        if block.kind == "forward":
            self._forward(i, n, micro_batch)
            return
        forward = self._position[block.of]
        if block.kind == "backward":
            inputs, output = self._saved.pop((forward, n))
            if output.requires_grad:
                slope = self._slope(forward, n, output)
                with self._watch.block(i):
                    torch.autograd.backward(output, slope)
            self._pass_back(forward, n, inputs, [x.grad for x in inputs])
        elif block.kind == "input_gradient":
            inputs, output = self._saved.pop((forward, n))
            half = SplitBackward(output, self._slope(forward, n, output), inputs, self._modules[forward])
            self._halves[forward, n] = half
            with self._watch.block(i):
                gradients = half.input_gradients()
            self._pass_back(forward, n, inputs, gradients)
        else:
            with self._watch.block(i):
                self._halves.pop((forward, n)).weight_gradients()
        if block.memory < 0 and (forward, n) not in self._halves:
            self._held -= 1

    def _forward(self, i: int, n: int, micro_batch: Any) -> None:
        block = self._blocks[i]
        inputs = [self._take((p, None), n).detach().requires_grad_(self.training) for p in self._traffic.inputs[i]]
        with torch.set_grad_enabled(self.training), self._watch.block(i):
            output = self._modules[i](micro_batch, *inputs)
        if not isinstance(output, torch.Tensor):
            raise UsageError(f"block {block.name!r} gave {type(output).__name__}", hint="a block gives one tensor")
        if self.training:
            self._saved[i, n] = inputs, output
            if block.memory > 0:
                self._held += 1
                self._peak_held = max(self._peak_held, self._held)
        whole = output.detach()
        if len(block.devices) > 1:
            whole = whole.clone()
            self._transfers.add_up(whole, block.devices)
        if self._traffic.users[i]:
            self._keep((i, None), n, (None, whole))
        elif not self.training:
            self._outputs.append(whole)
        elif whole.numel() != 1:
            raise UsageError(f"block {block.name!r} gave {tuple(whole.shape)}", hint="the last block gives the loss")
        elif block.devices[0] == self.here:
            self._loss += whole.reshape(())

    def _slope(self, i: int, n: int, output: torch.Tensor) -> torch.Tensor:
        """The gradient of the step's loss by an output."""
        if not self._traffic.users[i]:
            return torch.full_like(output, 1 / self.schedule.micro_batches)
        parts = [self._take((i, user), n) for user in self._traffic.users[i]]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

    def _pass_back(self, i: int, n: int, inputs: list[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
        devices = self._blocks[i].devices
        for p, x, found in zip(self._traffic.inputs[i], inputs, gradients, strict=True):
            gradient = torch.zeros_like(x) if found is None else found
            if len(devices) > 1:
                self._transfers.add_up(gradient, devices)
            self._keep((p, i), n, (None, gradient))

    def _keep(self, tensor: Tensor, n: int, value: Pending) -> None:
        if self._uses[tensor]:
            self._kept[tensor, n], self._left[tensor, n] = value, self._uses[tensor]

    def _take(self, tensor: Tensor, n: int) -> torch.Tensor:
        work, value = self._kept[tensor, n]
        if work is not None:
            work.wait()
            self._kept[tensor, n] = None, value
        self._left[tensor, n] -= 1
        if not self._left[tensor, n]:
            del self._kept[tensor, n], self._left[tensor, n]
        return value

    def _mean_loss(self) -> float:
        dist.all_reduce(self._loss)
        return float(self._loss) / self.schedule.micro_batches / self.replicas
