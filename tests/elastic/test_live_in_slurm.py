"""Generations in memory inside a real allocation: Slurm takes nodes away, and the processes that stay do not notice."""

import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from own_lab import own_lab

from ones_slurm.lab import Lab
from ones_slurm.model.wire import Order

from .conftest import TRAINING

pytest.importorskip("torch")
pytest.importorskip("mpi4py")

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.mpi]

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = pathlib.Path(__file__).resolve().with_name("scripted_run.py")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("live", nodes=3, gpus_per_node=2) as running:
        yield running


class LabJob:
    """A live job of user1 on the lab, with orders in a file."""

    def __init__(self, lab: Lab, *sbatch: str) -> None:
        self.lab, self.home = lab, lab.folder / "home" / "user1"
        self.orders = self.home / "orders"
        lab.run(["mkdir", "-p", "orders"])
        self.write("train.py", TRAINING)
        env = {"ORDERS": str(self.orders), "OUT": str(self.orders), "PAUSE_S": "0.1", "EPOCHS": "100000"}
        env |= {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", "STOP": str(self.orders / "stop")}
        run = f"exec python {DRIVER} -- python {self.orders}/train.py"
        exports = ",".join(["ALL", *(f"{name}={value}" for name, value in env.items())])
        line = ["sbatch", "--parsable", "-o", "live-%j.out", f"--export={exports}", *sbatch, "--wrap", run]
        self.id = lab.run(line).stdout.strip()
        self.generation = 0

    def write(self, name: str, text: str) -> None:
        aside = self.orders / f"{name}.new"
        aside.write_text(text)
        aside.rename(self.orders / name)

    def order(self, *nodes: str) -> None:
        self.generation += 1
        order = Order(generation=self.generation, kind="shrink", go=True, live=True, batch=0, nodes=nodes)
        self.write("order.json", msgspec.json.encode(order).decode())

    @property
    def output(self) -> str:
        path = self.home / f"live-{self.id}.out"
        return path.read_text() if path.exists() else "no output yet"

    @property
    def sync(self) -> dict[str, Any]:
        path = self.orders / "said.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return json.loads(lines[-1]) if lines else {"phase": "", "generation": -1}

    @property
    def step(self) -> int:
        word = json.loads((self.home / "ones-runs" / self.id / "progress.json").read_text())
        return int(word["progress"]["step"])

    def pids(self) -> set[str]:
        """The processes that wrote down a sample in the last steps, as `node-pid`."""
        found, step = set(), self.step
        for path in self.orders.glob("seen-*"):
            last = json.loads(path.read_text().splitlines()[-1])
            if last[2] >= step - 5:
                found.add(path.name.removeprefix("seen-"))
        return found

    def until(self, fact: Callable[[], object], within_s: float = 300) -> None:
        deadline = time.monotonic() + within_s
        while not fact():
            assert time.monotonic() < deadline, f"{self.sync}\n{self.output}"
            time.sleep(0.1)

    def trains_at(self, ranks: int) -> None:
        self.until(lambda: self.sync["phase"] == "training" and self.sync.get("ranks") == ranks)
        before = self.step
        self.until(lambda: self.step > before + 10)

    def slurm(self, *command: str) -> str:
        return self.lab.run(list(command)).stdout


def test_it_is_shrunk_in_place_grown_again_and_loses_a_node_while_the_batch_hosts_processes_live_on(lab: Lab) -> None:
    job = LabJob(lab, "-N3", "--ntasks-per-node=2", "--gres=gpu:2")
    job.trains_at(6)
    first = job.slurm("squeue", "-h", "-j", job.id, "-o", "%B").strip()
    others = [node for node in ("c1", "c2", "c3") if node != first]
    at_start = job.pids()
    assert len(at_start) == 6

    job.order(first, others[0])
    job.until(lambda: job.sync["generation"] == 1 and job.sync["phase"] == "training")
    job.slurm("scontrol", "update", f"JobId={job.id}", f"NodeList={first},{others[0]}")
    job.trains_at(4)
    survivors = job.pids()
    assert len(survivors) == 4
    assert survivors < at_start

    job.order(first)
    job.trains_at(2)
    job.order(first, others[0])  # its GPUs are still the job's
    job.trains_at(4)
    assert job.pids() & at_start == survivors & job.pids()
    assert len(job.pids() & at_start) == 2

    job.slurm("scontrol", "update", f"JobId={job.id}", f"NodeList={first}")  # without a word: its ranks are killed
    job.trains_at(2)
    assert job.pids() < at_start
    assert "going on from memory with 2 ranks" in job.output

    job.write("stop", "0")
    job.until(lambda: job.slurm("squeue", "-h", "-j", job.id, "-t", "running,completing") == "")
    samples = sorted(path.stat().st_size for path in job.orders.glob("seen-*"))
    assert len(samples) == 8
    run = json.loads((job.home / "ones-runs" / job.id / "generations.jsonl").read_text().splitlines()[-1])
    assert run["ended_why"] == "finished", job.output
