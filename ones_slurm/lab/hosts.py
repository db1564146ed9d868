"""Running commands on a lab's hosts: the lab's `ssh`, at the price of one extra exec (measured: about 3 ms)."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ones_slurm
from ones_slurm.model.errors import UsageError

from . import kernel
from .packages import debian_release
from .spec import USERS
from .state import LabState

CHECKOUT = Path(ones_slurm.__file__).resolve().parents[1]

_UIDS = {"root": 0} | {user.name: user.uid for user in USERS}
_NAMESPACES = (("mount", "mnt"), ("net", "net"), ("uts", "uts"), ("ipc", "ipc"))
# Open MPI 5.0.7 of Debian 13 dies in one start of ten over four nodes, when a message comes before MPI_Init is done
# (11 of 100 with its own transport, 0 of 40 with UCX).
_MPI_OF_DEBIAN_13 = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_pml_ucx_tls": "any",
    "OMPI_MCA_pml_ucx_devices": "any",
    "UCX_TLS": "tcp,self",
}
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path() -> str:
    """PATH inside the lab: this Python's commands first, then the wrappers of a checkout, then the system's."""
    return ":".join((f"{sys.prefix}/bin", f"{CHECKOUT}/wrappers", *_SYSTEM_PATH))


def clean_environment(user: str) -> dict[str, str]:
    """What a fresh login would have, and nothing of the caller's own environment."""
    env = {
        "HOME": "/root" if user == "root" else f"/home/{user}",
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "PATH": search_path(),
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
    }
    if debian_release() == 13:
        env |= _MPI_OF_DEBIAN_13
    if not CHECKOUT.is_relative_to(sys.prefix):
        env["PYTHONPATH"] = str(CHECKOUT)
    return env


class Hosts:
    """The hosts of one running lab, each known by the namespaces that its first process holds."""

    # Children of this process, by whichever object: the kernel ends a lab only when their parents have collected them.
    _started: ClassVar[list["subprocess.Popen[Any]"]] = []

    def __init__(self, state: LabState) -> None:
        self._head_pid = state.holder_pid
        self._pids = state.host_pids

    def proc(self, host: str) -> Path:
        """The /proc folder of a host's first process, seen through the head's own /proc."""
        if host not in self._pids:
            raise UsageError(f"no host '{host}' in this lab", hint=f"one of: {', '.join(self._pids)}")
        return Path(f"/proc/{self._head_pid}/root/proc/{self._pids[host]}")

    def popen(
        self,
        host: str,
        argv: Sequence[str | Path],
        *,
        user: str,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        **streams: Any,
    ) -> "subprocess.Popen[Any]":
        """Start `argv` on `host` as `user`; the returned process is the command itself, not a go-between.

        nsenter execs the command without a fork as long as it is not asked for a pid namespace, and that one is
        entered here by the calling thread. So `terminate()` reaches the command, and its exit code is the command's.
        """
        if user not in _UIDS:
            raise UsageError(f"no user '{user}' in this lab", hint=f"one of: {', '.join(_UIDS)}")
        own = clean_environment(user) | dict(env or {})
        namespaces = self.proc(host) / "ns"
        enter = [f"--{flag}={namespaces}/{file}" for flag, file in _NAMESPACES]
        identity = ["--setuid", str(_UIDS[user]), "--setgid", str(_UIDS[user])]
        command = ["nsenter", *enter, *identity, f"--wdns={cwd or own['HOME']}", "--", *map(str, argv)]
        with kernel.children_born_in(f"{namespaces}/pid"):
            process = subprocess.Popen(command, env=own, umask=0o022, **streams)
        self.collect()
        self._started.append(process)
        return process

    @classmethod
    def collect(cls) -> None:
        """Take note of the children that have ended."""
        cls._started[:] = [process for process in cls._started if process.poll() is None]

    def kill_all(self, host: str) -> None:
        """SIGKILL to every process of a host, except the first, which holds its namespaces: kill(2) spares it."""
        self.signal(host, -1, signal.SIGKILL)

    def signal(self, host: str, pid: int, signal_: signal.Signals) -> None:
        """Signal a process by its number on that host; one that has ended meanwhile is no failure."""
        # The shell's own kill: that of procps takes -1 for an option.
        argv = ["sh", "-c", f"kill -s {signal_.name.removeprefix('SIG')} -- {pid}"]
        self.popen(host, argv, user="root", cwd="/", stderr=subprocess.DEVNULL).wait()
