"""A run folder, a daemon that can be scripted, and a small elastic training that writes down what it saw."""

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from ones_slurm.elastic.runfolder import RunFolder
from ones_slurm.model.errors import Unreachable
from ones_slurm.model.wire import Order, Phase, Reply, Sync

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
RANK_STARTER = CHECKOUT / "wrappers" / "ones-rank"

# Writes the indices of all samples on which it truly stepped, and the final weights, so that a test can compare.
TRAINING = """
import json, os, pathlib, sys, time
import torch
from ones_slurm import elastic

class Numbered(torch.utils.data.Dataset):
    def __init__(self):
        self.own = int(os.environ.get("SAMPLES", "101"))
        chance = torch.Generator().manual_seed(3)
        self.x = torch.randn(101, 6, generator=chance)
        self.y = self.x.sum(1, keepdim=True) + 0.1 * torch.randn(101, 1, generator=chance)
    def __len__(self):
        return self.own
    def __getitem__(self, index):
        return self.x[index], self.y[index], index

torch.set_num_threads(1)
torch.manual_seed(0)
out = pathlib.Path(os.environ["OUT"])
layers = [torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
if os.environ.get("RANDOM"):
    layers[2:2] = [torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.4)]
model = torch.nn.Sequential(*layers).double()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
job = elastic.init(model, optimizer, scheduler, seed=5)
loader = job.loader(Numbered(), batch_size=13, shuffle=True, num_workers=int(os.environ.get("WORKERS", "0")))
net = job.wrap(model)
pause_s = float(os.environ.get("PAUSE_S", "0"))
with (out / f"seen-{os.environ.get('ONES_NODE')}-{os.getpid()}").open("a") as seen:
    for epoch in job.epochs(int(os.environ.get("EPOCHS", "4"))):
        for x, y, index in loader:
            own = index.tolist()[:loader.drawn.own]
            loss = torch.nn.functional.mse_loss(net(x.double()), y.double())
            time.sleep(pause_s)
            print(json.dumps([epoch, own, job.steps, job.formation]), file=seen, flush=True)
            job.step(loss)
        job.report(loss=loss)
        stop = pathlib.Path(os.environ.get("STOP", "/nowhere"))
        if stop.exists() and epoch >= int(stop.read_text()):
            break
(out / f"sockets-{os.getpid()}").write_text(str(sum("socket:" in os.readlink(f"/proc/self/fd/{fd}")
                                                    for fd in os.listdir("/proc/self/fd") if int(fd) > 3
                                                    if os.path.exists(f"/proc/self/fd/{fd}"))))
if job.world.rank == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": job.steps,
                "samples": job.samples, "sizes": job._sizes, "epoch": epoch,
                "lr": scheduler.get_last_lr(), "world": job.world.size}, out / "final.pt")
"""


@pytest.fixture
def training(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "training.py"
    path.write_text(TRAINING)
    return path


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.prepare()
    return made


@pytest.fixture
def rank_env(tmp_path: pathlib.Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "ONES_"))},
        "PYTHONPATH": str(CHECKOUT),
        "OMP_NUM_THREADS": "1",
        "OUT": str(tmp_path),
    }


class Daemon:
    """Answers as onesd does: at once where there is an order that was not followed yet, else after the wait."""

    def __init__(self) -> None:
        self.heard: list[Sync] = []
        self.order: Order | None = None
        self.away = False
        self.greets = False
        self.answer: Callable[[Sync], None] = lambda sync: None
        self._lock = threading.Lock()

    def sync(self, job_id: str, sync: Sync, wait_s: float = 0.0) -> Reply:
        assert job_id == "12"
        until = time.monotonic() + wait_s
        with self._lock:
            self._check()
            self.heard.append(sync)
            self.answer(sync)
        while time.monotonic() < until and not self._fresh(sync):
            time.sleep(0.02)
        with self._lock:
            self._check()
            return Reply(self.order)

    def phases(self) -> list[Phase]:
        """The phases in order of arrival, each once where it was repeated."""
        told = [sync.phase for sync in self.heard]
        return [phase for at, phase in enumerate(told) if at == 0 or told[at - 1] != phase]

    def _fresh(self, sync: Sync) -> bool:
        if sync.phase == Phase.STARTING and not sync.ranks and not self.greets:
            return True  # most stories give no first order, and would only wait for it
        return self.away or (self.order is not None and self.order.generation > sync.generation)

    def _check(self) -> None:
        if self.away:
            raise Unreachable("onesd does not answer")


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def mpiexec(ranks: int, *command: str | pathlib.Path) -> list[str]:
    return [
        *("mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)),
        *(sys.executable, str(RANK_STARTER), sys.executable, *map(str, command)),
    ]


def run_ok(command: list[str], env: dict[str, str], code: int = 0) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
