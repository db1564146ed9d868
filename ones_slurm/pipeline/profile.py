"""Measure the blocks of a real model on this machine, so that a schedule can be searched for it."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.pipeline.lanes import traffic_of
from ones_slurm.pipeline.spec import Block, Placement
from ones_slurm.pipeline.split_backward import SplitBackward

BYTES_PER_GIB = 2**30


def profile(
    placement: Placement,
    modules: Mapping[str, nn.Module],
    micro_batch: Any,
    *,
    device: torch.device,
    repeats: int = 5,
    link_gib_per_s: float | None = None,
) -> Placement:
    """The placement with measured times (microseconds), memory (bytes) and, from the bandwidth, transfers.

    Times are medians of `repeats` runs after one that warms up. A block on several devices is measured by the share in
    `modules`, without the sum over the devices. Memory is what autograd keeps for the backward, parameters left out,
    so limits must be what a device has left beside parameters, gradients and optimiser.
    """
    bench = _Bench(placement, modules, micro_batch, device)
    for _ in range(repeats + 1):
        bench.run_once()
    return bench.measured(link_gib_per_s)


def profile_target(target: str, device: str, repeats: int, link_gib_per_s: float | None) -> Placement:
    """`profile` of what a function `file.py:function` returns: (placement, modules, one micro-batch)."""
    path, _, name = target.rpartition(":")
    if not path or not Path(path).is_file():
        raise NotFound(f"there is no file for {target!r}", hint="FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", hint="FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if function is None:
        raise NotFound(f"{path} has no function {name!r}", hint="FILE.py:FUNCTION")
    placement, modules, micro_batch = function(torch.device(device))
    return profile(
        placement, modules, micro_batch, device=torch.device(device), repeats=repeats, link_gib_per_s=link_gib_per_s
    )


class _Bench:
    def __init__(
        self, placement: Placement, modules: Mapping[str, nn.Module], micro_batch: Any, device: torch.device
    ) -> None:
        self.placement, self.modules, self.micro_batch, self.device = placement, modules, micro_batch, device
        self.traffic = traffic_of(placement)
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.kept_bytes: dict[str, int] = {}
        self.output_bytes: dict[int, int] = {}

    def run_once(self) -> None:
        """One micro-batch through all blocks, and back through each of them."""
        values: dict[int, torch.Tensor] = {}
        for i, needs in sorted(self.traffic.inputs.items()):
            name = self.placement.blocks[i].name
            if name not in self.modules:
                raise UsageError(f"no module for block {name!r}", hint="the function returns one for each forward")
            inputs = [values[p].detach().requires_grad_() for p in needs]
            output = self._forward(name, self.modules[name], inputs)
            values[i] = output.detach()
            self.output_bytes[i] = output.numel() * output.element_size()
            self._backward(name, self.modules[name], inputs, output)

    def measured(self, link_gib_per_s: float | None) -> Placement:
        """The placement with the figures of all runs but the first."""
        blocks = tuple(self._with_figures(block, link_gib_per_s) for block in self.placement.blocks)
        return msgspec.structs.replace(self.placement, blocks=blocks)

    def _forward(self, name: str, module: nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
        own = {p.untyped_storage().data_ptr() for p in module.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output: torch.Tensor = self._timed(name, "forward", lambda: module(self.micro_batch, *inputs))
        self.kept_bytes[name] = sum(kept.values())
        return output

    def _backward(self, name: str, module: nn.Module, inputs: list[torch.Tensor], output: torch.Tensor) -> None:
        kinds = {block.kind for block in self.placement.blocks if block.of == name}
        slope = torch.ones_like(output)
        if "backward" in kinds and output.requires_grad:
            self._timed(name, "backward", lambda: torch.autograd.backward(output, slope))
        elif "input_gradient" in kinds:
            half = SplitBackward(output, slope, inputs, module)
            self._timed(name, "input_gradient", half.input_gradients)
            self._timed(name, "weight_gradient", half.weight_gradients)

    def _timed(self, name: str, kind: str, work: Callable[[], Any]) -> Any:
        self._wait()
        began = time.perf_counter()
        answer = work()
        self._wait()
        self.seconds.setdefault((name, kind), []).append(time.perf_counter() - began)
        return answer

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _with_figures(self, block: Block, link_gib_per_s: float | None) -> Block:
        forward = block.of or block.name
        runs = self.seconds.get((forward, block.kind), [0.0, 0.0])[1:]
        kept = self.kept_bytes[forward] if self.traffic.gradient else 0
        halves = {b.kind for b in self.placement.blocks if b.of == forward}
        # What the forward keeps goes with its last half.
        gives = block.kind != "input_gradient" or "weight_gradient" not in halves
        transfer_us = None
        if link_gib_per_s is not None:
            i = next(i for i, b in enumerate(self.placement.blocks) if b.name == forward)
            moved = [i] if block.kind == "forward" else self.traffic.inputs[i]
            transfer_us = sum(self.output_bytes[p] for p in moved) / (link_gib_per_s * BYTES_PER_GIB) * 1e6
        return msgspec.structs.replace(
            block,
            # A block that does nothing still has to take its place in the order.
            time_us=max(round(statistics.median(runs) * 1e6, 1), 0.1),
            memory=kept if block.kind == "forward" else -kept if gives else 0,
            transfer_us=transfer_us,
        )
