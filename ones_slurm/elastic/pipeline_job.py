"""A job whose model is a pipeline: its ranks are replicas x devices, and a schedule says what each of them does."""

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from ones_slurm.elastic.job import Job
from ones_slurm.elastic.world import World
from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline.executor import Executor
from ones_slurm.pipeline.model import PipelineModel
from ones_slurm.pipeline.schedule import Schedule


class PipelineJob(Job):
    """Made by `ones_slurm.elastic.init_pipeline`. The job grows and shrinks by whole replicas.

    Every rank holds the whole model and trains its device's parts; the others are brought up to date on rank 0 before a
    checkpoint, which therefore fits any number of replicas. In a world of one the model runs in one piece.
    """

    def __init__(
        self,
        model: PipelineModel,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        schedule: Schedule,
        *,
        world: World,
        seed: int,
    ) -> None:
        devices = schedule.placement.devices
        if world.size > 1 and world.size % devices:
            raise UsageError(
                f"{world.size} ranks cannot be replicas of a pipeline of {devices} devices",
                hint="as many ranks a node as the pipeline has devices make every size fit",
            )
        self._pipeline, self._schedule, self._devices = model, schedule, devices
        self._replicas = max(world.size // devices, 1)
        super().__init__(model, optimizer, scheduler, world=world, seed=seed)
        self._executor: Executor | None = None
        if world.size > 1:
            self._executor = Executor(schedule, model.on(world.rank % devices), str(world.device))

    @property
    def readers(self) -> World:
        """The ranks of one replica read the same samples."""
        return msgspec.structs.replace(self.world, rank=self.world.rank // self._devices, size=self._replicas)

    def train(self, micro_batches: Sequence[Any]) -> float:
        """One step on this replica's micro-batches, as `step` of a plain job; gives the mean loss of all replicas."""
        share = self._drawn()
        if share.own * self._replicas != share.batch:
            raise UsageError(
                f"a batch of {share.batch} samples is not the same for {self._replicas} replicas",
                hint="choose batches and a number of samples that the replicas divide",
            )
        if self._executor is not None:
            loss = torch.tensor(self._executor.step(micro_batches).loss)
        else:
            losses = [self._pipeline(batch) / len(micro_batches) for batch in micro_batches]
            loss = torch.stack(losses).sum()
            loss.backward()  # type: ignore[no-untyped-call]
        self._advance(share, loss)
        return float(loss.detach())

    def _save(self, *, leaving: bool = False) -> str:
        self._collect()
        return super()._save(leaving=leaving)

    def _collect(self) -> None:
        """Rank 0 gets the parts and the optimiser's state of the other devices, from the first replica."""
        rank, owners = self.world.rank, self._pipeline.owners()
        if self._executor is None or rank >= self._devices:
            return
        for device in range(1, self._devices):
            mine = {name for name, owner in owners.items() if owner == device}
            if rank == device:
                packed = self._packed(mine)
                dist.send(torch.tensor([packed.numel()], device=self.device), 0)
                dist.send(packed, 0)
            elif rank == 0:
                length = torch.zeros(1, dtype=torch.int64, device=self.device)
                dist.recv(length, device)
                packed = torch.empty(int(length), dtype=torch.uint8, device=self.device)
                dist.recv(packed, device)
                self._unpack(packed)

    def _packed(self, parts: set[str]) -> torch.Tensor:
        state = {
            name: (parameter.detach().cpu(), self._optimizer.state.get(parameter, {}))
            for name, parameter in self._named(parts)
        }
        buffers = {name: b.cpu() for part in parts for name, b in self._pipeline.parts[part].named_buffers(prefix=part)}
        file = io.BytesIO()
        torch.save({"parameters": state, "buffers": buffers}, file)
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8).to(self.device)

    def _unpack(self, packed: torch.Tensor) -> None:
        state = torch.load(io.BytesIO(packed.cpu().numpy().tobytes()), map_location=self.device, weights_only=True)
        parameters = dict(self._named(set(self._pipeline.parts)))
        buffers = dict(self._pipeline.parts.named_buffers())
        with torch.no_grad():
            for name, (value, slots) in state["parameters"].items():
                parameters[name].copy_(value)
                self._optimizer.state[parameters[name]] = slots
            for name, value in state["buffers"].items():
                buffers[name].copy_(value)

    def _named(self, parts: set[str]) -> list[tuple[str, torch.nn.Parameter]]:
        return [item for part in sorted(parts) for item in self._pipeline.parts[part].named_parameters(prefix=part)]
