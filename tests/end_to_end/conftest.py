"""A lab with `onesd` in it, and the few gestures of its stories."""

import json
import os
import pathlib
import signal
import subprocess
import time

import msgspec
import pytest
from own_lab import need_lab
from told import PAUSE_S, SCRIPT

from ones_slurm.lab import Lab, LabSpec
from ones_slurm.lab.site_file import site_file

# Ours: how much slower than two idle cores a machine may be that still shall pass.
SLOWEST = 4


class Site:
    """The lab as its users and its operator see it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.daemon: subprocess.Popen | None = None

    @property
    def home(self) -> pathlib.Path:
        """user1's home, from outside."""
        return self.lab.folder / "home/user1"

    def start_daemon(self, *options: str) -> None:
        if self.daemon is not None and self.daemon.poll() is None:
            self.stop_daemon()  # a story that failed half-way and is told again
        with (self.lab.folder / "log/onesd.log").open("a") as log:
            self.daemon = self.lab.popen(["onesd", *options], user="operator", host="head", stdout=log, stderr=log)
        self.until(lambda: self.ones("queue").returncode == 0, "onesd answers", 30)

    def kill_daemon(self) -> None:
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait(60)

    def stop_daemon(self) -> int:
        self.daemon.terminate()
        return self.daemon.wait(60)

    def ones(self, *argv: str, user: str = "operator", host: str = "head") -> subprocess.CompletedProcess:
        return self.lab.run(["ones", *argv], user=user, host=host, check=False)

    def sbatch(self, *argv: str | pathlib.Path, user: str = "user1", **more: object) -> str:
        return self.lab.run(["sbatch", "--parsable", *argv], user=user, **more).stdout.strip()

    def nodes(self, job_id: str) -> int:
        """Nodes that the job holds now, by Slurm's own word; 0 when it does not run."""
        said = self.lab.run(["squeue", "-h", "-j", job_id, "-t", "R", "-o", "%D"], user="root", check=False).stdout
        return int(said.strip() or 0)

    def row(self, job_id: str) -> dict:
        rows = json.loads(self.ones("queue", "--json").stdout)["jobs"]
        return next((row for row in rows if row["job_id"] == job_id), {})

    def in_queue(self, job_id: str) -> bool:
        return job_id in self.lab.run(["squeue", "-h", "-o", "%i"], user="root").stdout.split()

    def moves(self, job_id: str) -> list:
        from ones_slurm.engine.journal import Journal

        with Journal.read(self.lab.folder / "home/operator/onesd/journal.sqlite") as journal:
            return [move for move in journal.moves(job_id) if move.kind != "start"]

    def until(self, happened, what: str, within_s: float):
        """Waits for something to become true and returns it; the log says what did not happen.

        `within_s` is ample on two idle cores.
        """
        within_s *= SLOWEST
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            if value := happened():
                return value
            time.sleep(0.3)
        log = (self.lab.folder / "log/onesd.log").read_text()[-4000:]
        outputs = "\n".join(path.read_text(errors="replace")[-1500:] for path in self.home.glob("*.out"))
        raise AssertionError(f"not within {within_s:g} s: {what}\n--- onesd\n{log}\n--- outputs\n{outputs}")


@pytest.fixture(scope="module")
def site(request):
    """A lab of four nodes with one GPU each, if the module's SHAPE says nothing else; the policy is the module's
    POLICY, else one whose moves are foretold."""
    need_lab()
    pytest.importorskip("torch")
    shape = {"nodes": 4, "gpus_per_node": 1} | getattr(request.module, "SHAPE", {})
    spec = LabSpec(name=f"end-to-end-{os.getpid()}", **shape)
    policy = getattr(request.module, "POLICY", "equal")
    hasty = (
        site_file(spec)
        .replace("min_move_gap_s = 15.0", "min_move_gap_s = 4.0")
        .replace("timeout_s = 60.0", f"timeout_s = {60.0 * SLOWEST}")
        + f'\n[policy]\nname = "{policy}"\n'
    )
    with Lab(msgspec.structs.replace(spec, etc_slurm={"ones.toml": hasty})) as lab:
        yield Site(lab)


@pytest.fixture(scope="module")
def submit_training(site):
    """Submits `train_and_tell.py` as user1, whose batch stays 64 at every size; returns the job id."""

    def submit(name: str, *, seed: int, epochs: int, asked: int = 4) -> str:
        return site.sbatch(
            "--comment=ones:nodes=1-4,batch=64-64",
            f"--nodes={asked}",
            "--gres=gpu:1",
            "--requeue",
            "--open-mode=append",
            f"--output={name}-%j.out",
            "--time=60",
            f"--wrap=exec ones-run -- python {SCRIPT} $HOME/{name} {seed} {epochs} {PAUSE_S}",
        )

    return submit
