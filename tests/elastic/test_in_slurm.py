"""ones-run inside real allocations, without a daemon: the job keeps its size, and loses nothing when Slurm moves it."""

import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from own_lab import own_lab

from ones_slurm.lab import Lab

pytest.importorskip("torch")
pytest.importorskip("mpi4py")
pytest.importorskip("sklearn")

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.mpi]

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = CHECKOUT / "sbatch_templates" / "train"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with own_lab("elastic", nodes=3, gpus_per_node=2) as running:
        yield running


class Submitted:
    """A job of user1, and what it leaves behind."""

    def __init__(self, lab: Lab, *sbatch: str | pathlib.Path) -> None:
        self._lab = lab
        env = {"ONES_HOME": str(CHECKOUT)}
        common = ["sbatch", "--parsable", "--requeue", "--open-mode=append", "-o", "job-%j.out"]
        self.id = lab.run([*common, *sbatch], env=env).stdout.strip()
        self._home = lab.folder / "home" / "user1"

    @property
    def output(self) -> str:
        path = self._home / f"job-{self.id}.out"
        return path.read_text() if path.exists() else ""

    def generations(self) -> list[dict[str, Any]]:
        path = self._home / "ones-runs" / self.id / "generations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def step(self) -> int:
        path = self._home / "ones-runs" / self.id / "progress.json"
        word = json.loads(path.read_text()) if path.exists() else {"generation": -1}
        return int(word["progress"]["step"]) if word["generation"] >= 0 else 0

    def saved(self) -> bool:
        return any((self._home / "ones-runs" / self.id / "checkpoints").glob("*.pt"))

    def squeue(self, field: str) -> str:
        return self._lab.run(["squeue", "-h", "-j", self.id, "-o", field], check=False).stdout.strip()

    def until(self, fact: Callable[[], object], within_s: float = 480) -> None:
        deadline = time.monotonic() + within_s
        while not fact():
            assert time.monotonic() < deadline, self.output
            time.sleep(0.2)

    def until_ended(self) -> None:
        self.until(lambda: self.squeue("%T") in ("", "COMPLETED", "FAILED"))

    def accuracy(self) -> float:
        return float(self.output.rstrip().splitlines()[-1].removeprefix("accuracy "))


def test_the_template_trains_at_its_asked_size(lab: Lab) -> None:
    job = Submitted(
        lab, "-N2", "--ntasks-per-node=2", "--gres=gpu:2", CHECKOUT / "sbatch_templates/ddp.sbatch", "--epochs=10"
    )
    job.until_ended()
    assert job.accuracy() >= 0.97
    assert "(4 ranks, batch 64)" in job.output
    (only,) = job.generations()
    assert (only["ranks"], only["last_samples"], only["ended_why"]) == (4, 14370, "finished")
    assert len(only["nodes"]) == 2


def test_made_smaller_under_running_ranks_it_goes_on_from_memory_and_requeued_by_a_signal_from_its_checkpoint(
    lab: Lab,
) -> None:
    run = f"exec ones-run --checkpoint-every 1 -- python {TRAIN}/digits.py --epochs 20"
    job = Submitted(lab, "-N2", "--gres=gpu:1", "--wrap", run)
    job.until(lambda: job.step() > 10 and job.saved())

    lab.run(["scontrol", "update", f"JobId={job.id}", f"NodeList={job.squeue('%B')}"])
    job.until(lambda: "going on from memory with 1 ranks" in job.output)
    before = job.step()
    job.until(lambda: job.step() > before)
    lab.run(["scancel", "--batch", "--signal=USR2", job.id])
    job.until(lambda: len(job.generations()) == 1)
    job.until_ended()

    one, again = job.generations()
    assert (one["ended_why"], again["ended_why"]) == ("requeue", "finished")
    assert len(one["nodes"]) == 1
    assert (again["restarts"], again["first_step"]) == (1, one["last_step"])
    assert again["last_samples"] == 20 * 1437
    assert job.accuracy() >= 0.97


def test_a_script_without_our_api_saves_is_requeued_and_resumes(lab: Lab) -> None:
    job = Submitted(lab, "-N2", "--ntasks-per-node=1", CHECKOUT / "sbatch_templates/requeue_only.sbatch", "--epochs=30")
    job.until(lambda: "epoch 9" in job.output)
    lab.run(["scancel", "--batch", "--signal=USR2", job.id])
    job.until(lambda: "resumed in epoch" in job.output)
    job.until_ended()
    assert [line["ended_why"] for line in job.generations()] == ["requeue", "finished"]
    assert job.accuracy() >= 0.97


def test_a_script_that_fails_ends_the_job_and_the_first_rank_is_named(lab: Lab) -> None:
    fail = "import os,sys,time; sys.exit(5) if os.environ['RANK'] == '1' else time.sleep(100)"
    job = Submitted(lab, "-N2", "--wrap", f'exec ones-run -- python -c "{fail}"')
    job.until_ended()
    assert "the step failed with exit code" in job.output
    assert "rank 1 on c2 ended first: Exited with exit code 5" in job.output
    assert [line["ended_why"] for line in job.generations()] == ["failed"]
