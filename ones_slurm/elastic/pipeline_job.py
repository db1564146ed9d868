"""A job whose model is a pipeline: its ranks are replicas x devices, and a schedule says what each of them does."""

import io
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.utils.data import Dataset

from ones_slurm.elastic.job import Job
from ones_slurm.elastic.loader import Loader
from ones_slurm.elastic.world import World
from ones_slurm.model.errors import UsageError
from ones_slurm.model.wire import Pipeline
from ones_slurm.pipeline.book import Book
from ones_slurm.pipeline.executor import Executor
from ones_slurm.pipeline.model import PipelineModel
from ones_slurm.pipeline.schedule import Schedule

# What steps with half, twice and four times as many micro-batches take is found out as well, for the policy to weigh
# other batches and sizes; each of them in so much time (ours).
FURTHER, FURTHER_S = (0.5, 2, 4), 1.0


class PipelineJob(Job):
    """Made by `ones_slurm.elastic.init_pipeline`. The job grows and shrinks by whole replicas.

    Every rank holds the whole model and trains its device's parts; the others are brought up to date on rank 0 before a
    checkpoint, which therefore fits any number of replicas. In a world of one the model runs in one piece.

    Schedules belong to the job: rank 0 searches one for the number of micro-batches that this generation's batch gives,
    and keeps it, with what blocks have really taken, in the run folder.
    """

    # The executor's channels are built for one world.
    lives = False

    def __init__(
        self,
        model: PipelineModel,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        *,
        micro_batch: int,
        world: World,
        seed: int,
    ) -> None:
        devices = model.placement.devices
        if world.size > 1 and world.size % devices:
            raise UsageError(
                f"{world.size} ranks cannot be replicas of a pipeline of {devices} devices",
                hint="ask for nodes whose GPUs the devices divide, or the other way round",
            )
        if micro_batch < 1:
            raise UsageError(f"micro_batch must be at least 1, not {micro_batch}")
        self._pipeline, self._micro_batch, self._devices = model, micro_batch, devices
        self._replicas = max(world.size // devices, 1)
        super().__init__(model, optimizer, scheduler, world=world, seed=seed)
        self._executors: dict[tuple[int, int], Executor] = {}
        self._book: Book | None = None
        if world.size > 1 and world.rank == 0:
            self._book = Book(model.placement, self._folder.path / "schedules.json" if self._folder else None)

    @property
    def readers(self) -> World:
        """The ranks of one replica read the same samples."""
        return msgspec.structs.replace(self.world, rank=self.world.rank // self._devices, size=self._replicas)

    def loader(self, dataset: "Dataset[Any]", batch_size: int, **options: Any) -> Loader:
        """As of any job; the batch must be a multiple of replicas x micro-batch."""
        loader = super().loader(dataset, batch_size, **options)
        count, rest = divmod(loader.batch, self._replicas * self._micro_batch)
        if rest or not count:
            raise UsageError(
                f"a batch of {loader.batch} is no whole number of micro-batches of {self._micro_batch}, "
                f"{self._replicas} replicas",
                hint="choose a batch that is, also for the most replicas",
            )
        if self.world.size > 1:
            self._executor(count, self._micro_batch)
            self._tell_table(count)
        return loader

    def split(self, *tensors: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
        """This rank's samples of a step as micro-batches of one size, for `train`.

        The last batch of an epoch may have fewer or smaller ones. Of that, the last few samples that would not be the
        same number for each replica (fewer than there are replicas) are left out.
        """
        own = self._drawn().batch // self._replicas
        least = math.ceil(own / self._micro_batch)
        count = next(count for count in range(least, own + 1) if own % count == 0)
        return list(zip(*(tensor[:own].chunk(count) for tensor in tensors), strict=True))

    def train(self, micro_batches: Sequence[tuple[torch.Tensor, ...]] | Sequence[Any]) -> float:
        """One step on this replica's micro-batches, as `step` of a plain job; gives the mean loss of all replicas."""
        share = self._drawn()
        if self.world.size > 1:
            samples = share.batch // self._replicas // len(micro_batches)
            loss = torch.tensor(self._executor(len(micro_batches), samples).step(micro_batches).loss)
        else:
            losses = [self._pipeline(batch) / len(micro_batches) for batch in micro_batches]
            loss = torch.stack(losses).sum()
            loss.backward()  # type: ignore[no-untyped-call]
        self._advance(share, loss)
        return float(loss.detach())

    def _executor(self, count: int, samples: int) -> Executor:
        """For so many micro-batches of that size: all ranks come here alike, and do what rank 0 found."""
        if (count, samples) not in self._executors:
            found = "" if self._book is None else msgspec.json.encode(self._book.plan(count).schedule).decode()
            schedule = msgspec.json.decode(self._agreement.tell(found), type=Schedule)
            parts = self._pipeline.on(self.world.rank % self._devices)
            self._executors[count, samples] = Executor(schedule, parts, str(self.world.device))
        return self._executors[count, samples]

    def _tell_table(self, count: int) -> None:
        """Rank 0 leaves word of what steps take, for the policy."""
        if self._book is None or self._folder is None:
            return
        self._book.add([int(count * factor) for factor in FURTHER if count * factor >= 1], FURTHER_S)
        self._folder.write_pipeline(Pipeline(self._devices, self._micro_batch, self._book.steps_s()))

    def _save(self, *, leaving: bool = False) -> str:
        self._collect()
        return super()._save(leaving=leaving)

    def _collect(self) -> None:
        """Rank 0 gets the parts and the optimiser's state of the other devices, and what their blocks took, from the
        first replica."""
        rank, owners = self.world.rank, self._pipeline.owners()
        if self.world.size == 1 or rank >= self._devices:
            return
        times_us = self._times_us()
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
                for name, took in self._unpack(packed).items():
                    times_us[name] = max(took, times_us.get(name, 0.0))
        if self._book is not None and times_us:
            self._book.measured(times_us)

    def _times_us(self) -> dict[str, float]:
        """Of this device's blocks, in steps with micro-batches of full size."""
        times: dict[str, float] = {}
        for (_, samples), executor in self._executors.items():
            if samples == self._micro_batch:
                times.update(executor.block_times_us())
        return times

    def _packed(self, parts: set[str]) -> torch.Tensor:
        state = {
            name: (parameter.detach().cpu(), self._optimizer.state.get(parameter, {}))
            for name, parameter in self._named(parts)
        }
        buffers = {name: b.cpu() for part in parts for name, b in self._pipeline.parts[part].named_buffers(prefix=part)}
        file = io.BytesIO()
        torch.save({"parameters": state, "buffers": buffers, "times_us": self._times_us()}, file)
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8).to(self.device)

    def _unpack(self, packed: torch.Tensor) -> dict[str, float]:
        """Takes over a device's state; returns what its blocks took."""
        state = torch.load(io.BytesIO(packed.cpu().numpy().tobytes()), map_location=self.device, weights_only=True)
        parameters = dict(self._named(set(self._pipeline.parts)))
        buffers = dict(self._pipeline.parts.named_buffers())
        with torch.no_grad():
            for name, (value, slots) in state["parameters"].items():
                parameters[name].copy_(value)
                self._optimizer.state[parameters[name]] = slots
            for name, value in state["buffers"].items():
                buffers[name].copy_(value)
        times_us: dict[str, float] = state["times_us"]
        return times_us

    def _named(self, parts: set[str]) -> list[tuple[str, torch.nn.Parameter]]:
        return [item for part in sorted(parts) for item in self._pipeline.parts[part].named_parameters(prefix=part)]
