"""The daemons of a lab as a table, and what it takes to start, await, stop and kill one of them."""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ones_slurm.model.errors import Failed, UsageError

from .hosts import Hosts
from .slurm_conf import MARIADB_SOCKET, MUNGE_SOCKET
from .spec import LabSpec

POLL_S = 0.02
# Ours: a daemon that is not ready by then, on a machine with two very busy cores, will never be.
READY_WITHIN_S = 120.0
# Ours: between the end of the foreground process and the sight of the daemon lies one fork and one exec.
DETACHES_WITHIN_S = 3.0
LOG_LINES = 12
TCP_LISTEN = "0A"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One daemon. It is ready when it listens on `port` or, without one, when `socket` is there (paths inside).

    `answers` is a command that succeeds once the daemon does its work: slurmctld 24.11 listens before it looks for its
    plugins, and may still die of what it does not find.
    """

    name: str
    host: str
    argv: tuple[str, ...]
    pid_file: Path
    log: Path
    port: int | None = None
    socket: Path | None = None
    answers: tuple[str, ...] = ()

    @property
    def daemon(self) -> str:
        """The program, as the kernel knows it."""
        return self.name.partition("-")[0]


def service_table(spec: LabSpec, folder: Path) -> dict[str, Service]:
    """All services by name, in the order in which they must start; a node's slurmd is called `slurmd-c1`."""
    log = folder / "log"
    table = [
        Service(
            name="munged",
            host="head",
            # --force: munged mistrusts a key whose folder a user could reach, and a test's folder may be anywhere.
            argv=(
                "munged",
                "--force",
                f"--key-file={folder}/etc/munge.key",
                f"--socket={MUNGE_SOCKET}",
                "--pid-file=/run/munge/munged.pid",
                f"--log-file={log}/munged.log",
                "--seed-file=/run/munge/munged.seed",
            ),
            pid_file=Path("/run/munge/munged.pid"),
            log=log / "munged.log",
            socket=MUNGE_SOCKET,
        ),
        Service(
            name="mariadbd",
            host="head",
            # mariadbd cannot detach itself.
            argv=("setsid", "--fork", "mariadbd", *mariadb_options(folder)),
            pid_file=Path("/run/mysqld/mysqld.pid"),
            log=log / "mariadbd.log",
            socket=MARIADB_SOCKET,
        ),
        Service(
            name="slurmdbd",
            host="head",
            argv=("slurmdbd",),
            pid_file=Path("/run/slurmdbd.pid"),
            log=log / "slurmdbd.log",
            port=6819,
        ),
        Service(
            name="slurmctld",
            host="head",
            argv=("slurmctld",),
            pid_file=Path("/run/slurmctld.pid"),
            log=log / "slurmctld.log",
            port=6817,
            answers=("scontrol", "ping"),
        ),
    ]
    table += [
        Service(
            name=f"slurmd-{node}",
            host=node,
            argv=("slurmd", "-N", node),
            pid_file=Path(f"/run/slurmd-{node}.pid"),
            log=log / f"slurmd-{node}.log",
            port=6818,
        )
        for node in spec.node_names
    ]
    return {service.name: service for service in table}


def mariadb_options(folder: Path) -> tuple[str, ...]:
    """A small server that never waits for the disk: a lab's accounting may be lost with the machine."""
    return (
        "--no-defaults",
        "--user=root",
        f"--datadir={folder}/database",
        f"--socket={MARIADB_SOCKET}",
        "--pid-file=/run/mysqld/mysqld.pid",
        "--skip-networking",
        f"--init-file={folder}/etc/database.sql",
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--innodb-doublewrite=0",
        # slurmdbd's large transactions wait for locks longer than the default 50 s allows.
        "--innodb-lock-wait-timeout=900",
        "--performance-schema=0",
        "--max-connections=50",
    )


class Services:
    """Start and end the daemons of one lab."""

    def __init__(self, hosts: Hosts, table: dict[str, Service]) -> None:
        self._hosts = hosts
        self._table = table

    def named(self, name: str) -> Service:
        if name not in self._table:
            raise UsageError(f"no service '{name}' in this lab", hint=f"one of: {', '.join(self._table)}")
        return self._table[name]

    def start(self, *names: str) -> None:
        """Start the services at the same time, and return when all of them are ready."""
        services = [self.named(name) for name in names]
        started: list[tuple[Service, subprocess.Popen[Any]]] = []
        for service in services:
            with service.log.open("ab") as log:
                process = self._hosts.popen(
                    service.host,
                    service.argv,
                    user="root",
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            started.append((service, process))
        for service, process in started:
            if process.wait(READY_WITHIN_S) != 0:
                raise _failed(service, f"ended with {process.returncode}")
        for service in services:
            self.await_ready(service)

    def await_ready(self, service: Service) -> None:
        """A daemon detaches first and may die afterwards: that is seen as well, without waiting for the time-out."""
        deadline = time.monotonic() + READY_WITHIN_S
        last_seen = time.monotonic()
        while not self._ready(service):
            now = time.monotonic()
            if self._runs(service):
                last_seen = now
            elif now > last_seen + DETACHES_WITHIN_S:
                raise _failed(service, "ended before it was ready")
            if now > deadline:
                raise _failed(service, f"was not ready within {READY_WITHIN_S:.0f} s")
            time.sleep(POLL_S)

    def stop(self, name: str, signal_: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal to a service and return when its process has ended; a stopped service stays stopped."""
        service = self.named(name)
        pid = self.pid(service)
        if pid is None:
            return
        self._hosts.signal(service.host, pid, signal_)
        if not _until(lambda: self.pid(service) != pid, READY_WITHIN_S):
            raise _failed(service, f"did not end within {READY_WITHIN_S:.0f} s of {signal_.name}")

    def _runs(self, service: Service) -> bool:
        """Whether any process on the host bears the daemon's name, with or without a pid file yet."""
        for comm in (self._hosts.proc(service.host) / "root" / "proc").glob("[0-9]*/comm"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if comm.read_text().strip() == service.daemon:
                    return True
        return False

    def pid(self, service: Service) -> int | None:
        """The daemon's number on its host, if it runs."""
        root = self._hosts.proc(service.host) / "root"
        try:
            pid = int((root / service.pid_file.relative_to("/")).read_text())
            command = (root / "proc" / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        # Pid files outlive a killed daemon, and numbers come round again.
        ended = command.rpartition(")")[2].split()[0] in "ZX"
        return None if ended or f"({service.daemon})" not in command else pid

    def _ready(self, service: Service) -> bool:
        host = self._hosts.proc(service.host)
        if service.socket is not None:
            return (host / "root" / service.socket.relative_to("/")).exists() and self.pid(service) is not None
        return self.pid(service) is not None and service.port in _listening(host) and self._answers(service)

    def _answers(self, service: Service) -> bool:
        if not service.answers:
            return True
        null = subprocess.DEVNULL
        asked = self._hosts.popen(service.host, service.answers, user="root", cwd="/", stdout=null, stderr=null)
        return asked.wait() == 0


def _listening(proc: Path) -> set[int]:
    """The TCP ports somebody listens on, of both address families, in the network namespace of a process."""
    ports = set()
    for family in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / family).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        fields = (row.split() for row in rows)
        ports |= {int(f[1].rpartition(":")[2], 16) for f in fields if f[3] == TCP_LISTEN}
    return ports


def _until(done: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _failed(service: Service, what: str) -> Failed:
    tail = service.log.read_text(errors="replace").splitlines()[-LOG_LINES:] if service.log.exists() else []
    lines = "".join(f"\n    {line}" for line in tail)
    return Failed(f"{service.name} on {service.host} {what}{lines}", hint=f"its log: {service.log}")
