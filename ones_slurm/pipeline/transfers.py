"""Tensors between the ranks of one pipeline: sends that nobody waits for, receives that are waited for at their use."""

from __future__ import annotations

from itertools import combinations

import torch
import torch.distributed as dist

from ones_slurm.model.errors import Failed
from ones_slurm.pipeline.lanes import Flow, Step
from ones_slurm.pipeline.spec import Placement

# The header of a tensor: its type, its number of dimensions, its size in each.
HEADER_LENGTH = 10
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Transfers:
    """Groups of their own for point-to-point traffic and for the blocks on several devices.

    Shapes are told once: the first time that a flow is sent, a header goes before it.
    """

    def __init__(self, placement: Placement, lists: list[list[Step]], replicas: int, device: torch.device) -> None:
        self._device = device
        self._replica, self._here = divmod(dist.get_rank(), placement.devices)
        self._first = self._replica * placement.devices
        sets = sorted({block.devices for block in placement.blocks if len(block.devices) > 1})
        pairs = sorted({(d, step.peer) for d, steps in enumerate(lists) for step in steps if step.do == "send"})
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for replica in range(replicas):  # every rank makes every group, in the same order
            first = replica * placement.devices
            pipe = dist.new_group([first + d for d in range(placement.devices)])
            teams = {devices: dist.new_group([first + d for d in devices]) for devices in sets}
            if replica == self._replica:
                self._pipe, self._groups = pipe, teams
        self._shapes: dict[tuple[Flow, int], torch.Size] = {}
        self._types: dict[tuple[Flow, int], torch.dtype] = {}
        self._sent: list[tuple[dist.Work | None, torch.Tensor]] = []
        self._touch({tuple(sorted(pair)) for pair in pairs})

    def _touch(self, pairs: set[tuple[int, ...]]) -> None:
        """Use every pair and group once in one order: NCCL builds its communicators at their first use."""
        for a, b in combinations(range(self._first, self._first + dist.get_world_size(self._pipe)), 2):
            local = (a - self._first, b - self._first)
            if local in pairs and self._here in local:
                token = torch.zeros(1, device=self._device)
                for source, target in ((a, b), (b, a)):
                    if source == self._first + self._here:
                        dist.send(token, target, group=self._pipe)
                    else:
                        dist.recv(token, source, group=self._pipe)
        for devices, group in self._groups.items():
            if self._here in devices:
                dist.all_reduce(torch.zeros(1, device=self._device), group=group)

    def add_up(self, tensor: torch.Tensor, devices: tuple[int, ...]) -> None:
        """Sum of a tensor over the devices of a block, in place."""
        dist.all_reduce(tensor, group=self._groups[devices])

    def send(self, flow: Flow, peer: int, tensor: torch.Tensor) -> None:
        """Begin to send; the tensor is kept until it has left."""
        tensor = tensor.contiguous()
        key = flow, peer
        if flow.via is None:
            if key not in self._shapes:
                self._begin(_header(tensor).to(self._device), peer)
                self._shapes[key] = tensor.shape
            elif self._shapes[key] != tensor.shape:
                raise Failed(
                    f"an output changed its shape from {tuple(self._shapes[key])} to {tuple(tensor.shape)}",
                    hint="all micro-batches must have one shape: pad them, or drop the last",
                )
        self._sent = [(work, kept) for work, kept in self._sent if work is not None and not work.is_completed()]
        self._begin(tensor, peer)

    def receive(self, flow: Flow, peer: int, like: torch.Tensor | None) -> tuple[dist.Work | None, torch.Tensor]:
        """Begin to receive a tensor like another, or like the first one that came; wait for the work before use."""
        if like is None:
            key = flow, peer
            if key not in self._shapes:
                header = torch.zeros(HEADER_LENGTH, dtype=torch.int64, device=self._device)
                dist.recv(header, self._first + peer, group=self._pipe)
                kind, dimensions, *sizes = header.tolist()
                self._shapes[key] = torch.Size(sizes[:dimensions])
                self._types[key] = DTYPES[kind]
            tensor = torch.empty(self._shapes[key], dtype=self._types[key], device=self._device)
        else:
            tensor = torch.empty(like.shape, dtype=like.dtype, device=self._device)
        return dist.irecv(tensor, self._first + peer, group=self._pipe), tensor

    def finish(self) -> None:
        """Wait until everything has left."""
        for work, _ in self._sent:
            if work is not None:
                work.wait()
        self._sent.clear()

    def _begin(self, tensor: torch.Tensor, peer: int) -> None:
        self._sent.append((dist.isend(tensor, self._first + peer, group=self._pipe), tensor))


def _header(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in DTYPES or tensor.dim() > HEADER_LENGTH - 2:
        raise Failed(
            f"a block gave a tensor of type {tensor.dtype} with {tensor.dim()} dimensions",
            hint=f"floating point with at most {HEADER_LENGTH - 2} dimensions goes from block to block",
        )
    header = torch.zeros(HEADER_LENGTH, dtype=torch.int64)
    header[0], header[1] = DTYPES.index(tensor.dtype), tensor.dim()
    header[2 : 2 + tensor.dim()] = torch.tensor(tensor.shape, dtype=torch.int64)
    return header
