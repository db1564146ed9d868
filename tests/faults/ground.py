"""The lab on which faults happen: its `onesd`, its processes and their signals, its journal on a small disk."""

import json
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ones_slurm.lab import Lab, LabSpec
from ones_slurm.lab.site_file import site_file

STATE_DIR = "/home/operator/onesd"
JOURNAL_MIB = 96
NETWORK_DEVICE = "eth0"
# Ours: what should happen within seconds, on a machine that is badly overloaded.
AT_LAST_S = 120.0


class Process(msgspec.Struct, frozen=True):
    """A process on a host of the lab, by its number there."""

    host: str
    pid: int
    argv: tuple[str, ...]
    env: dict[str, str]


class Ground:
    """A lab that is up, with an `onesd` that can be ended and begun again."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.log = lab.folder / "log/onesd.log"
        self.daemon: subprocess.Popen[bytes] | None = None
        lab.run(["mkdir", "-p", STATE_DIR], user="operator", host="head")
        # A disk of its own, which can be full.
        options = f"size={JOURNAL_MIB}m,mode=0755"
        lab.run(["mount", "-t", "tmpfs", "-o", options, "journal", STATE_DIR], user="root", host="head")
        lab.run(["chown", "operator", STATE_DIR], user="root", host="head")

    @staticmethod
    def spec(name: str, nodes: int) -> LabSpec:
        """A lab of whole nodes, with four GPUs each, on which moves follow each other fast."""
        spec = LabSpec(name=name, nodes=nodes, gpus_per_node=4)
        hasty = site_file(spec).replace("min_move_gap_s = 15.0", "min_move_gap_s = 4.0")
        return msgspec.structs.replace(spec, etc_slurm={"ones.toml": hasty + '\n[policy]\nname = "equal"\n'})

    def journal(self) -> dict[str, Any]:
        """What the journal says, read as a reader would while `onesd` writes (SQLite follows no path through /proc)."""
        look = pathlib.Path(__file__).with_name("look_into_journal.py")
        argv = ("python", look, f"{STATE_DIR}/journal.sqlite")
        found: dict[str, Any] = json.loads(self.lab.run(argv, user="operator", host="head").stdout)
        return found

    @property
    def state_dir(self) -> pathlib.Path:
        """The daemon's folder, as this process reaches it."""
        return self._inside("head") / STATE_DIR.removeprefix("/")

    @property
    def site_file(self) -> pathlib.Path:
        return self.lab.folder / "slurm/ones.toml"

    def _inside(self, host: str) -> pathlib.Path:
        return self.lab._hosts.proc(host) / "root"

    def start_daemon(self) -> None:
        """Begins an `onesd` and returns when it answers."""
        with self.log.open("a") as log:
            self.daemon = self.lab.popen(["onesd"], user="operator", host="head", stdout=log, stderr=log)
        self.until(self.answers, "onesd answers")

    def answers(self) -> bool:
        if self.daemon is not None and self.daemon.poll() is not None:
            raise AssertionError(f"onesd ended with {self.daemon.returncode}: {self.log.read_text()[-2000:]}")
        return self.ones("queue").returncode == 0

    def end_daemon(self, how: signal.Signals) -> int:
        """Ends it and returns its exit code."""
        assert self.daemon is not None
        self.daemon.send_signal(how)
        return self.daemon.wait(AT_LAST_S)

    def ones(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        return self.lab.run(["ones", *argv], user="operator", host="head", check=False)

    def as_root(self, *argv: str, host: str = "head", check: bool = True) -> str:
        return self.lab.run(argv, user="root", host=host, cwd="/", check=check).stdout

    def processes(self, host: str) -> list[Process]:
        """What runs on a host."""
        found = []
        for folder in (self._inside(host) / "proc").glob("[0-9]*"):
            try:
                argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                env = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if argv and state not in "ZX":
                pairs = dict(line.split("=", 1) for line in env if "=" in line)
                found.append(Process(host, int(folder.name), tuple(argv), pairs))
        return sorted(found, key=lambda process: process.pid)

    def signal(self, process: Process, number: signal.Signals) -> None:
        self.lab._hosts.signal(process.host, process.pid, number)

    def service_process(self, name: str) -> Process | None:
        """A daemon of the lab, if it runs."""
        services = self.lab._services
        service = services.named(name)
        pid = services.pid(service)
        return Process(service.host, pid, service.argv, {}) if pid is not None else None

    def until(self, happened: Callable[[], object], what: str, within_s: float = AT_LAST_S) -> None:
        deadline = time.monotonic() + within_s
        while not happened():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within_s:g} s: {what}\n--- onesd\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)
