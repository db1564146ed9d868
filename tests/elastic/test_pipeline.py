"""A pipeline job is moved between one and two replicas, and learns what the model in one piece learns."""

import pathlib
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ortools")

from ones_slurm.elastic import checkpoint  # noqa: E402
from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402

from .conftest import mpiexec, run_ok  # noqa: E402
from .test_training import leave_after  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.mpi]

TRAINING = """
import os, time
import torch
from torch import nn
from ones_slurm import elastic
from ones_slurm.pipeline import by_name
from ones_slurm.pipeline.model import PipelineModel

class Part(nn.Module):
    def __init__(self, block, share):
        super().__init__()
        self.linear, self.last = nn.Linear(6, 6).double(), block.name == "F1"
        self.register_buffer("calls", torch.zeros(()))
    def forward(self, batch, *inputs):
        y = torch.tanh(self.linear(inputs[0] if inputs else batch[0]))
        return ((y - batch[1]) ** 2).mean() if self.last else y

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(2, 96, 6, generator=torch.Generator().manual_seed(3)).double()
model = PipelineModel(by_name("M2"), Part)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
job = elastic.init_pipeline(model, optimizer, micro_batch=3, seed=5)
loader = job.loader(torch.utils.data.TensorDataset(x, y), batch_size=int(os.environ.get("BATCH", "12")), shuffle=True)
for epoch in job.epochs(4):
    for batch in loader:
        job.train(job.split(*batch))
        time.sleep(float(os.environ.get("PAUSE_S", "0")))
"""


@pytest.fixture
def pipeline(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "pipeline.py"
    path.write_text(TRAINING)
    return path


def last_state(folder: RunFolder) -> dict[str, Any]:
    return checkpoint.load(checkpoint.newest_first(folder.checkpoints)[0])


def tensors(state: dict[str, Any]) -> list[Any]:
    slots = [slot for _, slots in sorted(state["optimizer"]["state"].items()) for slot in slots.values()]
    return [*state["model"].values(), *slots]


def test_moved_between_one_and_two_replicas_it_learns_what_one_piece_learns(
    pipeline: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    alone = RunFolder(tmp_path / "alone")
    alone.prepare()
    run_ok([sys.executable, str(pipeline)], {**rank_env, "ONES_RUN_DIR": str(alone.path)})

    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1"}
    first = leave_after(mpiexec(2, pipeline), env, folder, steps=3)
    second = leave_after(mpiexec(4, pipeline), env, folder, steps=first.progress.step + 4)
    assert 3 <= first.progress.step < second.progress.step < 32
    folder.begin_generation()
    run_ok(mpiexec(2, pipeline), {**env, "PAUSE_S": "0"})

    moved, straight = last_state(folder), last_state(alone)
    assert [size["ranks"] for size in moved["sizes"]] == [2, 4, 2]
    assert moved["samples"] == straight["samples"] == 4 * 96
    assert len(tensors(moved)) == len(tensors(straight))
    for mine, theirs in zip(tensors(moved), tensors(straight), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("ranks", "batch", "complaint"),
    [
        (3, "12", "3 ranks cannot be replicas of a pipeline of 2 devices"),
        (4, "13", "a batch of 13 is no whole number of micro-batches of 3, 2 replicas"),
    ],
)
def test_sizes_that_replicas_cannot_share_are_refused(
    pipeline: pathlib.Path, rank_env: dict[str, str], ranks: int, batch: str, complaint: str
) -> None:
    done = subprocess.run(
        mpiexec(ranks, pipeline),
        env={**rank_env, "BATCH": batch},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode
    assert complaint in done.stderr
