"""The world of one generation, as a rank finds it in its environment or enters it later."""

import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch.distributed import PrefixStore, TCPStore, rendezvous  # type: ignore[attr-defined]

from ones_slurm.elastic.agreement import Store
from ones_slurm.elastic.formation import Member
from ones_slurm.elastic.group import Group, backend_for
from ones_slurm.elastic.store import open_store
from ones_slurm.model.errors import UsageError

_GROUP = Group()
_entered: list["World"] = []


class Seat(msgspec.Struct, frozen=True):
    """A rank's place in a job whose store is held by `ones-run`, so that its world may change around it.

    `joining` is the generation that a newcomer was started for; None for one who was there from the beginning.
    """

    store: TCPStore
    member: Member
    group: Group
    backend: str
    joining: int | None = None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Rank, size and what the wrapper asks of this generation.

    `batch` is the global batch in samples, 0 for the script's own; `lr_scale` multiplies the script's learning rate.
    Without a `folder` there are no orders to follow and no checkpoints. `store` is None in a world of one that nobody
    can join. A newcomer's rank and size are those that were planned, until it has come in.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    generation: int = 0
    batch: int = 0
    lr_scale: float = 1.0
    checkpoint_every_s: float = 60.0
    folder: pathlib.Path | None = None
    store: Store | None = None
    seat: Seat | None = None

    @property
    def device(self) -> torch.device:
        """This rank's device: a GPU of its own where there are enough of them, else the CPU."""
        return _device_of(self.local_rank)


@functools.cache
def _device_of(local_rank: int) -> torch.device:
    """Asked in every step, and torch counts the GPUs of the machine anew each time; a process keeps those it has."""
    return torch.device("cuda", local_rank) if torch.cuda.device_count() > local_rank else torch.device("cpu")


def join(env: Mapping[str, str] = os.environ) -> World:
    """Enters the world that the environment describes, as `ones-rank` or torchrun set it; else a world of one.

    Starts torch.distributed (NCCL where every rank has a GPU, gloo otherwise) when there is more than one rank. A
    newcomer is only let in later, by those who train. A process enters once; later calls give the same world.
    """
    if not _entered:
        _entered.append(_join(env))
    return _entered[0]


def _join(env: Mapping[str, str]) -> World:
    folder = env.get("ONES_RUN_DIR")
    try:
        rank, size, local_rank, local_size = (
            int(env.get(name, default))
            for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
        )
        if torch.cuda.device_count() > local_rank:
            torch.cuda.set_device(local_rank)
        backend = backend_for(local_size)
        held = "ONES_STORE" in env
        if held:
            # torch's own watchdog would end this process when a peer dies; the pulse aborts the group instead.
            os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        store = _store(rank, size, env) if held or size > 1 else None
        joining = env.get("ONES_JOINING")
        if store is not None and not joining:
            _GROUP.form(store, number=0, rank=rank, size=size, backend=backend)
        return World(
            rank=rank,
            size=size,
            local_rank=local_rank,
            generation=int(env.get("ONES_GENERATION", "0")),
            batch=int(env.get("ONES_BATCH", "0")),
            lr_scale=float(env.get("ONES_LR_SCALE", "1")),
            checkpoint_every_s=float(env.get("ONES_CHECKPOINT_EVERY_S", "60")),
            folder=pathlib.Path(folder) if folder else None,
            store=PrefixStore("ones", store) if store is not None else None,
            seat=Seat(
                store=store,
                member=Member(f"{env['ONES_TEAM']}.{env['ONES_TASK']}", env["ONES_NODE"]),
                group=_GROUP,
                backend=backend,
                joining=int(joining) if joining else None,
            )
            if held and store is not None
            else None,
        )
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"the environment of this rank makes no sense: {error}", hint="start it by ones-run, torchrun or alone"
        ) from error


def leave() -> None:
    """Ends torch.distributed in this process, so that it exits without complaint."""
    _GROUP.dissolve()
    _GROUP.settle()


def _store(rank: int, size: int, env: Mapping[str, str]) -> Any:
    if "ONES_STORE" in env:
        address, _, port = env["ONES_STORE"].rpartition(":")
        return open_store(address, int(port))
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The agent keeps its store over restarts of the workers, with the addresses of those that are gone.
        attempt = env.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"attempt/{attempt}", next(iter(rendezvous("env://", rank, size)))[0])
    listening = env.get("ONES_STORE_FD") if rank == 0 else None
    return open_store(
        env["MASTER_ADDR"],
        int(env["MASTER_PORT"]),
        serve=None if listening is None else int(listening),
        here=rank == 0,
    )
