"""The Linux calls that the lab needs and Python 3.11 lacks: unshare, setns and mount.

`ctypes` is enough for these, and spares a compiled dependency; numbers are from <linux/sched.h> and <linux/mount.h>.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Give this process namespaces of its own; CLONE_NEWPID takes effect for its children."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str | Path, kind: str = "none", flags: int = 0, options: str = "") -> None:
    """mount(2), with the target named in the error, because errno alone never says which mount failed."""
    _check(
        _libc.mount(source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()),
        f"mount {kind} {source} on {target}",
    )


def bind(source: str, target: str | Path, *, read_only: bool = False) -> None:
    """Show `source` at `target` as well; read-only needs a second call, since the kernel ignores it in the first."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


@contextmanager
def children_born_in(pid_namespace: str) -> Iterator[None]:
    """Let the next children of the calling *thread* be born in another pid namespace; the process itself stays.

    So the caller is the direct parent of a process inside the lab: its signals, its exit code and its end are seen
    without a go-between.
    """
    home = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        away = os.open(pid_namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(away, CLONE_NEWPID), f"setns {pid_namespace}")
        finally:
            os.close(away)
        try:
            yield
        finally:
            _check(_libc.setns(home, CLONE_NEWPID), "setns back")
    finally:
        os.close(home)
