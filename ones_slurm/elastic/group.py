"""The process group of one formation: formed, dissolved, and hung up on when somebody in it has died.

A rank that waits in a collective of gloo for a dead peer, or one that is out of reach, waits for minutes, and torch has
no word to stop it: aborting the group does not wake it. Shutting its connections down does, at once and on both sides.
NCCL has such a word.
"""

import contextlib
import datetime
import os
import pathlib
import socket
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from ones_slurm.elastic.store import WAIT_AT_MOST

# Ours: all members stand ready when a group is formed, which takes milliseconds; a peer that dies in those is given up.
# Only the first one, number 0, is waited for as long as it takes: its ranks start when they start.
_FORM_WITHIN_S = 60.0
_FORM_S_PER_RANK = 0.1
# Ours: gloo's threads let go of a finished collective within microseconds, on a crowded machine within a time slice.
_SETTLE_LOOKS, _SETTLE_EVERY_S, _SETTLE_WITHIN_S = 3, 0.002, 5.0


class Group:
    """At most one at a time in a process. A world of one has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[int, str] = {}

    def form(self, store: TCPStore, *, number: int, rank: int, size: int, backend: str) -> None:
        """Joins the others, unless the script has done so; raises `RuntimeError` when one of them does not come."""
        if size == 1 or dist.is_initialized():
            return
        before = _sockets()
        within = datetime.timedelta(seconds=_FORM_WITHIN_S + _FORM_S_PER_RANK * size) if number else WAIT_AT_MOST
        dist.init_process_group(
            backend, store=PrefixStore(f"group/{number}", store), rank=rank, world_size=size, timeout=within
        )
        if backend == "gloo" and number:
            dist.distributed_c10d._set_pg_timeout(WAIT_AT_MOST, dist.group.WORLD)  # the time to form is over
        with self._lock:
            self._connections = {fd: its for fd, its in _sockets().items() if before.get(fd) != its}

    def dissolve(self) -> None:
        """Leaves the group; the others need not do so at the same time."""
        with self._lock:
            self._connections = {}
        with contextlib.suppress(RuntimeError):
            if dist.is_initialized():
                dist.destroy_process_group()

    def settle(self) -> None:
        """Before the interpreter ends: waits until gloo's threads have let go of the last collectives.

        Whoever still holds the group (a sharded model, a wrapped one) keeps these threads alive. One that drops a
        tensor while the interpreter ends asks for a lock that is gone, and takes the whole process with it (SIGABRT;
        a known fault of torch, up to 2.13 at least).
        """
        deadline, still = time.monotonic() + _SETTLE_WITHIN_S, 0
        while still < _SETTLE_LOOKS and time.monotonic() < deadline:
            time.sleep(_SETTLE_EVERY_S)  # lets go of the interpreter, so that a thread that waits for it gets it
            still = still + 1 if all(map(_sleeps, _gloo_threads())) else 0

    def hang_up(self) -> None:
        """From another thread: whoever waits in a collective of this group gets an error instead, here and there."""
        with self._lock:
            if dist.is_initialized() and dist.get_backend() == "nccl":
                dist.distributed_c10d._abort_process_group()
                return
            now = _sockets()
            for descriptor, its in self._connections.items():
                if now.get(descriptor) == its:
                    _shut(descriptor)
            self._connections = {}


def backend_for(local_size: int) -> str:
    """NCCL where each rank of this node has a GPU of its own, else gloo."""
    return "nccl" if dist.is_nccl_available() and torch.cuda.device_count() >= local_size else "gloo"


def is_broken(error: BaseException) -> bool:
    """Whether this error says that a collective failed, and not the script."""
    text = str(error)
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "Gloo", "NCCL", "ProcessGroup"))


def _gloo_threads() -> list[pathlib.Path]:
    """Those threads of this process that carry out gloo's collectives, as the kernel shows them."""
    found = []
    for entry in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            if (entry / "comm").read_text() == "pt_gloo_runloop\n":
                found.append(entry)
    return found


def _sleeps(thread: pathlib.Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True  # it has ended


def _sockets() -> dict[int, str]:
    """The sockets of this process by descriptor, each with the kernel's name for it."""
    found = {}
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            name = str(entry.readlink())
            if name.startswith("socket:"):
                found[int(entry.name)] = name
    return found


def _shut(descriptor: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as ours:
        # A listener belongs to gloo's own thread, which ends the process when its listener fails.
        if not ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            ours.shutdown(socket.SHUT_RDWR)
