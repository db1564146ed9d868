"""A small GPT behind a shared embedding, trained as a pipeline through sbatch, moved to two replicas and back."""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ones_slurm.lab import Lab, LabSpec, packages

pytest.importorskip("torch")
pytest.importorskip("mpi4py")
pytest.importorskip("ortools")

from .test_in_slurm import CHECKOUT, Submitted

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.mpi]

EPOCHS = 10


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    if absent := packages.missing():
        pytest.skip(f"a lab needs packages: {' '.join(absent)}")
    with Lab(LabSpec(name=f"pipeline-{os.getpid()}", nodes=2, gpus_per_node=4)) as running:
        yield running


def losses(output: str) -> dict[int, float]:
    """The loss of each epoch, as last printed."""
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"epoch (\d+): loss ([\d.]+)", output)}


def in_one_piece(folder: pathlib.Path) -> dict[int, float]:
    script = CHECKOUT / "sbatch_templates/train/pipeline_gpt.py"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "ONES_"))}
    env |= {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, str(script), "--epochs", str(EPOCHS)]
    return losses(subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=True).stdout)


def test_a_pipeline_grows_to_two_replicas_and_back_and_converges_as_one_process(
    lab: Lab, tmp_path: pathlib.Path
) -> None:
    alone = in_one_piece(tmp_path)
    job = Submitted(lab, CHECKOUT / "sbatch_templates/pipeline.sbatch", f"--epochs={EPOCHS}")
    job.until(lambda: job.step() > 5)

    lab.run(["scancel", "--batch", "--signal=USR2", job.id])
    job.until(lambda: len(job.generations()) == 1 and job.squeue("%T") == "PENDING")
    lab.run(["scontrol", "hold", job.id], user="operator")
    # A job that starts in the second in which it was put back is refused by slurmd, and has failed.
    for size in (["NumNodes=2-2", "NumTasks=8", "NumCPUs=8"], ["StartTime=now+2"]):
        lab.run(["scontrol", "update", f"JobId={job.id}", *size], user="operator")
    lab.run(["scontrol", "release", job.id], user="operator")
    grown_from = job.generations()[0]["last_step"]
    job.until(lambda: job.squeue("%T %D") == "RUNNING 2" and job.step() > grown_from + 5)

    lab.run(["scontrol", "update", f"JobId={job.id}", f"NodeList={job.squeue('%B')}"])
    job.until(lambda: len(job.generations()) == 2)
    job.until_ended()

    assert [line["ranks"] for line in job.generations()] == [4, 8, 4], job.output
    assert job.generations()[-1]["last_samples"] == EPOCHS * 1024
    last = EPOCHS - 1
    assert losses(job.output)[last] == pytest.approx(alone[last], rel=1e-3)
    assert alone[last] < 0.65 * alone[0]
