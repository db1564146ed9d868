"""The world of one generation, as a rank finds it in its environment: fixed for as long as the process lives."""

import contextlib
import datetime
import os
import pathlib
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore, rendezvous  # type: ignore[attr-defined]

from ones_slurm.elastic.agreement import Store
from ones_slurm.model.errors import UsageError

# torch's own default for collectives; a rank waits at the store no longer than it would in an all-reduce.
WAIT_AT_MOST = datetime.timedelta(minutes=30)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Rank, size and what the wrapper asks of this generation.

    `batch` is the global batch in samples, 0 for the script's own; `lr_scale` multiplies the script's learning rate.
    Without a `folder` there are no orders to follow and no checkpoints. `store` is None in a world of one.
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

    @property
    def device(self) -> torch.device:
        """This rank's device: a GPU of its own where there are enough of them, else the CPU."""
        if torch.cuda.device_count() > self.local_rank:
            return torch.device("cuda", self.local_rank)
        return torch.device("cpu")


def join(env: Mapping[str, str] = os.environ) -> World:
    """Enters the world that the environment describes, as `ones-rank` or torchrun set it; else a world of one.

    Starts torch.distributed (NCCL where every rank has a GPU, gloo otherwise) when there is more than one rank.
    """
    folder = env.get("ONES_RUN_DIR")
    try:
        rank, size, local_rank = (
            int(env.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
        )
        store = _store(rank, size, env) if size > 1 else None
        world = World(
            rank=rank,
            size=size,
            local_rank=local_rank,
            generation=int(env.get("ONES_GENERATION", "0")),
            batch=int(env.get("ONES_BATCH", "0")),
            lr_scale=float(env.get("ONES_LR_SCALE", "1")),
            checkpoint_every_s=float(env.get("ONES_CHECKPOINT_EVERY_S", "60")),
            folder=pathlib.Path(folder) if folder else None,
            store=PrefixStore("ones", store) if store else None,
        )
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"the environment of this rank makes no sense: {error}", hint="start it by ones-run, torchrun or alone"
        ) from error
    if store is not None and not dist.is_initialized():
        gpus = torch.cuda.device_count()
        if gpus > local_rank:
            torch.cuda.set_device(local_rank)
        dist.init_process_group(
            "nccl" if gpus >= int(env.get("LOCAL_WORLD_SIZE", "1")) and dist.is_nccl_available() else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=size,
        )
    return world


def leave() -> None:
    """Ends torch.distributed in this process, so that it exits without complaint."""
    with contextlib.suppress(RuntimeError):
        if dist.is_initialized():
            dist.destroy_process_group()


def _store(rank: int, size: int, env: Mapping[str, str]) -> Any:
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return next(iter(rendezvous("env://", rank, size)))[0]
    listening = env.get("ONES_STORE_FD") if rank == 0 else None
    # The descriptor is this process's own affair: a child that inherits it would keep the port.
    if listening is not None:
        os.set_inheritable(int(listening), False)
        _must_listen(int(listening))

    def store(*, libuv: bool) -> TCPStore:
        return TCPStore(
            env["MASTER_ADDR"],
            int(env["MASTER_PORT"]),
            size,
            rank == 0,
            WAIT_AT_MOST,
            wait_for_workers=False,
            master_listen_fd=None if listening is None else int(listening),
            use_libuv=libuv,
        )

    try:
        return store(libuv=True)
    except RuntimeError as error:
        if "libuv support" not in str(error):
            raise
        return store(libuv=False)  # Debian builds its torch without, and torch has no way to ask before


def _must_listen(descriptor: int) -> None:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as seen:
            seen.getsockname()
    except OSError as error:
        raise ValueError(f"ONES_STORE_FD={descriptor} is not a socket ({error.strerror})") from error
