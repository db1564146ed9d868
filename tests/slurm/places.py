"""Where the contract is tried: the fake, and a lab whose slurmctld is asked by one client or another."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from fake_slurm import FakeSlurm, World

from ones_slurm.lab import Lab
from ones_slurm.model import errors
from ones_slurm.slurm import client as records
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.client import SlurmClient
from ones_slurm.slurm.command import Runner

# Ours: what takes five seconds on two idle cores may take a minute where ten other builds run.
WITHIN_S = 180
LOG_LINES = 150


class Place(Protocol):
    """A cluster of four nodes with two GPUs each, with the users operator, user1 and user2."""

    accounts: bool

    def client(self, user: str) -> SlurmClient: ...
    def submit(self, *, nodes: int, comment: str = "", held: bool = False, requeue: bool = True) -> str: ...
    def wait(self, until: Callable[[], bool]) -> None: ...
    def controller_down(self) -> contextlib.AbstractContextManager[None]: ...


class FakePlace:
    accounts = True

    def __init__(self) -> None:
        self.world = World(nodes=4, gpus_per_node=2, requeue_delay_s=6.0)

    def client(self, user: str) -> SlurmClient:
        return FakeSlurm(self.world, user)

    def submit(self, *, nodes: int, comment: str = "", held: bool = False, requeue: bool = True) -> str:
        return self.world.submit(nodes=nodes, comment=comment, held=held, requeueable=requeue)

    def wait(self, until: Callable[[], bool]) -> None:
        for _ in range(60):
            if until():
                return
            self.world.advance(1.0)
        raise TimeoutError("it did not come about within 60 s")

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        self.world.down = True
        yield
        self.world.down = False


class LabPlace:
    """Jobs are user1's; each is cancelled when the place is left, so that one lab serves many stories."""

    accounts = True

    def __init__(self, lab: Lab, make: Callable[[Lab, str], SlurmClient]) -> None:
        self.lab = lab
        self._make = make

    def client(self, user: str) -> SlurmClient:
        return self._make(self.lab, user)

    def submit(self, *, nodes: int, comment: str = "", held: bool = False, requeue: bool = True) -> str:
        options = ["--hold"] if held else []
        options.append("--requeue" if requeue else "--no-requeue")
        options += [f"--nodes={nodes}", "--gpus-per-node=2", f"--comment={comment}", "--wrap=sleep 600"]
        return self.lab.run(["sbatch", "--parsable", *options]).stdout.strip()

    def wait(self, until: Callable[[], bool]) -> None:
        give_up_s = time.monotonic() + WITHIN_S
        while not until():
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"it did not come about within {WITHIN_S} s\n{what_slurm_says(self.lab)}")
            time.sleep(0.2)

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        self.lab.stop_service("slurmctld")
        try:
            yield
        finally:
            self.lab.start_service("slurmctld")

    def clear(self) -> None:
        self.lab.run(["scancel", "--user=user1"])
        self.wait(lambda: not self.lab.run(["squeue", "--noheader"]).stdout.strip())


def what_slurm_says(lab: Lab) -> str:
    """All that tells why a job waits: what Slurm shows of jobs and nodes, and the end of slurmctld's log."""
    told = []
    for command in ("squeue --all", "scontrol show job", "scontrol show node", "sinfo --list-reasons"):
        shown = lab.run(command.split(), user="operator", host="head", check=False)
        told.append(f"$ {command}\n{shown.stdout}{shown.stderr}")
    log = (lab.folder / "log" / "slurmctld.log").read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join([*told, "slurmctld.log:", *log])


def runner(lab: Lab, user: str) -> Runner:
    """Runs Slurm's commands inside the lab, as this user; like the real one it puts up with what is not UTF-8."""

    def run(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
        host = "head" if user == "operator" else "login"
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = lab.popen(argv, user=user, host=host, env=env, encoding="utf-8", errors="replace", **pipes)
        printed, said = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(argv, process.returncode, printed, said)

    return run


def command_client(lab: Lab, user: str) -> SlurmClient:
    """A client whose commands run inside the lab, as this user."""
    return CommandClient(runner(lab, user))


class RemoteClient:
    """A client that lives in a process inside the lab (pyslurm must), called through its command line."""

    def __init__(self, lab: Lab, user: str, path: str) -> None:
        self._lab, self._user, self._path = lab, user, path

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            host = "head" if self._user == "operator" else "login"
            script = Path(__file__).with_name("call_pyslurm.py")
            asked = json.dumps([method, arguments, named])
            env = {"PYTHONPATH": f"{Path(__file__).parents[2]}:{self._path}"}
            done = self._lab.run([sys.executable, script, asked], user=self._user, host=host, env=env)
            failed, value = json.loads(done.stdout.splitlines()[-1])
            if failed:
                raise getattr(errors, failed, records.Refused)(value)
            return msgspec.convert(value, _RESULTS[method])

        return call


_RESULTS: dict[str, Any] = {
    "snapshot": records.Snapshot,
    "job": records.JobRecord,
    "accounting": list[records.AccountingRow],
    **dict.fromkeys(("shrink", "size_pending", "requeue_hold", "release", "start_now"), None),
}
