"""The first process of a lab: it builds the namespaces, the bridge and the mounts, and then only holds them.

Everything in the lab lives below this process's pid namespace, so its death (SIGKILL, whoever sends it) makes the
kernel end every process and take back every mount, network and host name: there is no clean-up code that could fail.
Until the starter has said "keep", the end of the starter ends the lab too.

Run as `python -m ones_slurm.lab.head`, a `Blueprint` in JSON on the first line of standard input.
"""

import os
import signal
import socket
import stat
import subprocess
import sys
import traceback
from pathlib import Path

from . import kernel
from .blueprint import Blueprint, Built
from .codec import from_json, to_json
from .slurm_conf import MARIADB_SOCKET, MUNGE_SOCKET
from .spec import NETWORK, PREFIX_BITS

ALL_NAMESPACES = (
    kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC
)


def main() -> None:
    plan = from_json(sys.stdin.buffer.readline(), Blueprint)
    kernel.unshare(ALL_NAMESPACES)
    child = os.fork()
    if child:
        # The child's number as the machine sees it; inside, it is 1.
        _say(str(child))
        return
    try:
        _say(to_json(Built(_build(plan))).decode())
        if sys.stdin.buffer.readline() != b"keep\n":
            os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    _hold(f"ones-lab-{plan.name}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _hold(title: str) -> None:
    """Become a small process that does nothing, under a name that `ps` explains.

    It is the first process of a pid namespace and so inherits orphans; with SIGCHLD ignored, also after exec, the
    kernel collects those that end.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.execv("/bin/sleep", [title, "infinity"])


def _build(plan: Blueprint) -> dict[str, int]:
    os.umask(0o022)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("proc", "/proc", "proc")
    # One /run for all hosts: munge's socket must be seen by all of them, the machine's own daemons by none.
    kernel.mount("tmpfs", "/run", "tmpfs", options="mode=755")
    MUNGE_SOCKET.parent.mkdir()
    # MariaDB's root needs no password, so nobody else may reach the socket.
    MARIADB_SOCKET.parent.mkdir(mode=0o700)
    plan.gpu_folder.mkdir()
    for i in range(plan.gpus):
        device = plan.gpu_folder / f"gpu{i}"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.chmod(0o666)
    pids = {host: _fork_host(host, plan) for host in plan.addresses}
    _wire(pids, plan.addresses)
    return pids


def _fork_host(host: str, plan: Blueprint) -> int:
    """Start one host's first process and return when its namespaces stand.

    The host has a pid namespace too: `pkill` in a job must not reach the next node, nor a pid file on the shared home
    mean anything there. It takes a second fork, since unshare leaves the caller where it is.
    """
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            kernel.unshare(ALL_NAMESPACES)
            first = os.fork()
            if first:
                os.write(writer, f"{first}\n".encode())
                os._exit(0)
            socket.sethostname(host)
            lay_mounts(host, plan)
            os.write(writer, b"stands\n")
            _hold(f"ones-lab-{plan.name}-{host}")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    os.waitpid(middle, 0)
    with os.fdopen(reader, "rb") as answers:
        # Two processes write, in any order; the end comes when the holder's exec closes the pipe.
        said = set(answers.read().split())
    if b"stands" not in said:
        raise RuntimeError(f"host {host} could not be built")
    (pid,) = said - {b"stands"}
    return int(pid)


def lay_mounts(host: str, plan: Blueprint) -> None:
    """Private /tmp and /dev/shm, the lab's /home and /etc files, and then the shares that those or modes would hide."""
    kernel.mount("proc", "/proc", "proc")
    # Opened before anything is covered: the folder or a share may lie below /tmp or /home.
    shares = {path: os.open(path, os.O_PATH) for path in (*plan.shares, plan.folder)}
    own = f"/proc/self/fd/{shares[plan.folder]}"
    kernel.bind(f"{own}/tmp/{host}", "/tmp")
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", options="mode=1777")
    kernel.bind(f"{own}/home", "/home")
    kernel.bind(f"{own}/slurm", "/etc/slurm")
    for name in ("passwd", "group", "shadow", "hosts"):
        kernel.bind(f"{own}/etc/{name}", f"/etc/{name}")
    for path in sorted(shares, key=lambda p: len(p.parts)):
        _show(path, shares[path], read_only=path != plan.folder)


def _show(path: Path, fd: int, *, read_only: bool) -> None:
    """Make `path` reachable for ordinary users, if it is not already.

    The topmost folder on the way that others may not enter (/root, mostly) is covered by an empty one of mode 755, in
    which nothing but the wanted folder appears: the rest of it stays private.
    """
    closed = next((p for p in reversed(path.parents) if p.exists() and not p.stat().st_mode & stat.S_IXOTH), None)
    reachable = closed is None and path.exists() and os.path.samestat(path.stat(), os.fstat(fd))
    # The lab's own folder is bound in any case: it may lie in a share, which is read-only.
    if reachable and read_only:
        return
    if closed is not None:
        kernel.mount("tmpfs", closed, "tmpfs", options="mode=755")
    path.mkdir(parents=True, exist_ok=True)
    kernel.bind(f"/proc/self/fd/{fd}", path, read_only=read_only)


def _wire(pids: dict[str, int], addresses: dict[str, str]) -> None:
    """One bridge in the head's own network namespace, one cable to each host; the machine's network sees nothing."""
    lines = ["link set lo up", "link add bridge type bridge", "link set bridge up"]
    for host, pid in pids.items():
        lines += [
            f"link add {host} type veth peer name eth0 netns {pid}",
            f"link set {host} master bridge up",
        ]
    _ip([], lines)
    for host, pid in pids.items():
        _ip(
            ["nsenter", f"--net=/proc/{pid}/ns/net"],
            [
                "link set lo up",
                f"addr add {addresses[host]}/{PREFIX_BITS} dev eth0",
                "link set eth0 up",
                # Slurm sends a message as two small writes, so each answer of slurmdbd would wait 40 ms for a delayed
                # acknowledgement, ten times a command (measured: sacctmgr 0.36 s, without the delay 0.02 s).
                f"route change local {addresses[host]} dev eth0 table local quickack 1",
                f"route change {NETWORK} dev eth0 quickack 1",
            ],
        )


def _ip(enter: list[str], lines: list[str]) -> None:
    subprocess.run([*enter, "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


if __name__ == "__main__":
    main()
