"""Generations in memory on GPUs: NCCL, mixed precision, the GPU's random numbers, memory that leavers give back."""

import json
import pathlib

import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic.boundary import Boundary  # noqa: E402
from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402

from .live_job import LiveJob  # noqa: E402

pytestmark = pytest.mark.torch

on_a_gpu = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU, and this machine has none")
on_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs, for NCCL takes one rank on each")

NODES = ("c1", "c2")

TRAIN = """
import json, os, pathlib, time
os.environ["CUDA_VISIBLE_DEVICES"] = str(int(os.environ["ONES_NODE"][1:]) - 1)
import torch
from ones_slurm import elastic
torch.manual_seed(0)
layers = [torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda", growth_interval=5)
job = elastic.init(model, optimizer, scaler=scaler)
loader = job.loader(torch.utils.data.TensorDataset(torch.randn(256, 8)), batch_size=32, shuffle=True)
net = job.wrap(model)
with (pathlib.Path(os.environ["OUT"]) / os.environ["ONES_NODE"]).open("a") as file:
    for epoch in job.epochs(100000):
        for (x,) in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(x.to(job.device)).square().mean()
            job.step(loss)
            time.sleep(0.02)
            weight = float(model[0].weight.double().sum())
            backend = torch.distributed.get_backend() if torch.distributed.is_initialized() else "alone"
            moments = float(sum(state["exp_avg"].double().sum() for state in optimizer.state.values()))
            line = [job.steps, job.world.size, backend, weight, scaler.get_scale(), moments]
            print(json.dumps(line), file=file, flush=True)
"""


@on_gpus
def test_a_world_on_gpus_grows_shrinks_and_loses_a_rank(
    rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    with LiveJob(folder, script, rank_env, NODES).begin("c1") as job:
        first = job.pid("c1")
        job.move("c1", "c2")
        job.goes_on()
        job.goes_on()
        job.move("c1")
        free_bytes, _ = torch.cuda.mem_get_info(1)
        job.move("c1", "c2")
        job.goes_on()
        assert torch.cuda.mem_get_info(1)[0] < free_bytes, "the leaver kept its memory"
        job.kill("c2")
        job.goes_on()
        assert job.pid("c1") == first
        job.stop()
        seen = {node: [json.loads(line) for line in (tmp_path / node).read_text().splitlines()] for node in NODES}
        theirs = {line[0]: line for line in seen["c2"]}
        both = [line for line in seen["c1"] if line[0] in theirs and line[1] == 2]
        assert {line[2] for line in both} == {"nccl"}
        for line in both:
            assert theirs[line[0]] == pytest.approx(line)


@on_a_gpu
def test_a_half_done_step_on_a_gpu_draws_the_same_again() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).cuda()
    x = torch.randn(8, 3, device="cuda")
    model(x)
    boundary = Boundary(model)
    once = model(x)
    boundary.go_back()
    assert torch.equal(model(x), once)
