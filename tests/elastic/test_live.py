"""Generations in memory: what is learned does not depend on who came, went or died on the way."""

import json
import os
import pathlib
import random
import signal
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic.boundary import Boundary  # noqa: E402
from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402
from ones_slurm.elastic.transfer import Parcel  # noqa: E402
from ones_slurm.model.errors import Failed  # noqa: E402
from ones_slurm.model.wire import Declined  # noqa: E402

from .conftest import run_ok  # noqa: E402
from .live_job import LiveJob  # noqa: E402
from .test_training import final, furthest_apart, seen_samples  # noqa: E402

pytestmark = pytest.mark.torch

NODES = ("c1", "c2", "c3", "c4")

# Writes a digest of each part of the state at every step; a newcomer also when it has come in.
WATCHED = """
import hashlib, io, json, os, pathlib, time
import torch
from ones_slurm import elastic

def digest(state):
    file = io.BytesIO()
    torch.save(state, file)
    return hashlib.sha256(file.getvalue()).hexdigest()[:12]

class Average:
    def __init__(self):
        self.mean = torch.zeros(4)
    def state_dict(self):
        return {"mean": self.mean.clone()}
    def load_state_dict(self, state):
        self.mean = state["mean"].clone()

torch.set_num_threads(1)
torch.manual_seed(0)
out = pathlib.Path(os.environ["OUT"])
layers = [torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)]
model = torch.nn.Sequential(*layers)
model.register_buffer("secret", torch.zeros(1), persistent=False)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=1000)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5)
job = elastic.init(model, optimizer, warm_up, scaler=scaler)
average = Average()
job.keep(average=average)
data = torch.utils.data.TensorDataset(torch.randn(40, 4, generator=torch.Generator().manual_seed(1)))
loader = job.loader(data, batch_size=8, shuffle=True)
net = job.wrap(model)

def note(file, when):
    parts = {"model": [p.detach() for p in model.parameters()], "adam": optimizer.state_dict()["state"],
             "schedule": warm_up.state_dict(), "scaler": scaler.state_dict(), "average": average.mean,
             "numbers": [job.epoch, job.samples, job._position, list(job._ramp.__struct_fields__)],
             "norm": dict(model[1].named_buffers()), "secret": model.secret}
    digests = {name: digest(part) for name, part in parts.items()}
    print(json.dumps([when, job.steps, job.formation, digests]), file=file, flush=True)

with (out / f"state-{os.getpid()}").open("w") as file:
    begun = False
    for epoch in job.epochs(100000):
        note(file, "goes on" if begun else "begins")
        begun = True
        for (x,) in loader:
            time.sleep(0.05)
            if job.step(net(x).square().mean()):
                average.mean = 0.9 * average.mean + 0.1 * model[0].bias.detach()
                with torch.no_grad():
                    model.secret += 1
                note(file, "stepped")
"""


def test_it_grows_shrinks_and_loses_a_node_without_a_stop_and_learns_the_same(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    run_ok([sys.executable, str(training)], {**rank_env, "OUT": str(alone), "EPOCHS": "40"})

    env = {**rank_env, "PAUSE_S": "0.05", "EPOCHS": "40"}
    with LiveJob(folder, training, env, NODES).begin("c1", "c2") as job:
        survivor = job.pid("c1")
        job.move("c1", "c2", "c3")
        assert job.sync.ranks == 3
        job.move("c1", "c3")
        assert job.pids("c2") == []
        job.kill("c3")
        assert job.pid("c1") == survivor
        assert job.end() == 0
        assert final(tmp_path)["steps"] == 320
        assert furthest_apart(final(tmp_path), final(alone)) < 1e-6
        assert seen_samples(tmp_path) == {epoch: list(range(101)) for epoch in range(40)}


def test_a_newcomer_has_every_part_of_the_state(
    rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "watched.py"
    script.write_text(WATCHED)
    with LiveJob(folder, script, rank_env, NODES).begin("c1") as job:
        job.until(lambda: job.word.progress.step > 10)
        old = job.pid("c1")
        job.move("c1", "c2")
        new = job.pid("c2")
        job.goes_on()
        job.goes_on()
        job.move("c2")
        job.goes_on()
        job.stop()

        def lines(pid: int) -> list[tuple[str, int, int, dict[str, str]]]:
            return [tuple(json.loads(line)) for line in (tmp_path / f"state-{pid}").read_text().splitlines()]

        first, at, _, came_with = lines(new)[0]
        assert first == "begins"
        (had,) = [digests for when, step, _, digests in lines(old) if (when, step) == ("stepped", at)]
        assert came_with == had
        both = {step: digests for when, step, _, digests in lines(old) if when == "stepped" and step > at}
        assert both
        alike = ("model", "adam", "schedule", "scaler", "average", "numbers", "secret")
        for when, step, _, digests in lines(new):
            if when == "stepped" and step in both:
                assert {part: digests[part] for part in alike} == {part: both[step][part] for part in alike}
        steps = [step for when, step, _, _ in lines(new) if when == "stepped"]
        assert steps == list(range(at + 1, at + 1 + len(steps)))
        assert len(steps) > len(both), "it trained on alone"


def test_dropout_batch_norm_and_the_order_of_samples_go_on_to_the_bit_through_a_new_generation_of_the_same_size(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    outs = [tmp_path / "straight", tmp_path / "moved"]
    for out in outs:
        out.mkdir()
    env = {**rank_env, "RANDOM": "1", "WORKERS": "1", "EPOCHS": "6"}
    with LiveJob(folder, training, {**env, "OUT": str(outs[0])}, NODES).begin("c1", "c2") as straight:
        assert straight.end() == 0
        other = RunFolder(tmp_path / "other")
        other.prepare()
    with LiveJob(other, training, {**env, "OUT": str(outs[1]), "PAUSE_S": "0.1"}, NODES).begin("c1", "c2") as moved:
        moved.move("c1", "c2")
        assert moved.end() == 0
        assert len(other.generations()) == 2
        assert furthest_apart(final(outs[0]), final(outs[1])) == 0.0


def test_orders_that_cannot_be_followed_are_declined_with_the_cause_and_nothing_is_lost(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder
) -> None:
    env = {**rank_env, "PAUSE_S": "0.05", "EPOCHS": "1000000", "SAMPLES": "3"}
    with LiveJob(folder, training, env, NODES).begin("c1", "c2") as job:
        pids = job.pids("c1") + job.pids("c2")

        def reason(*nodes: str) -> str:
            job.move(*nodes)
            assert isinstance(job.sync.declined, Declined)
            assert job.sync.declined.generation == job.generation
            job.goes_on()
            return job.sync.declined.reason

        assert "c9, which neither this allocation (c1, c2, c3, c4) nor a companion holds" in reason("c1", "c9")
        assert "the dataset has 3 samples, fewer than the 4 ranks" in reason("c1", "c2", "c3", "c4")
        job.command = [sys.executable, "-c", "raise RuntimeError('no')"]
        assert "new ranks on c3 did not come in: rank 2.0 on c3: Exited with exit code 1" in reason("c1", "c2", "c3")
        job.command, job.joining_env = [sys.executable, str(training)], {"RANDOM": "1"}
        assert "the model of a newcomer on c3 (3.0) is not the others'" in reason("c1", "c2", "c3")
        assert job.pids("c1") + job.pids("c2") == pids
        assert job.pids("c3") == []
        job.stop()


def test_a_state_that_cannot_be_sent_is_named_and_one_that_cannot_be_kept_refused() -> None:
    with pytest.raises(Failed, match="the state of the scheduler cannot be sent to a new rank"):
        Parcel({"model": {"a": torch.zeros(1)}, "scheduler": {"rule": lambda step: 1.0}})


def test_a_rank_that_is_out_of_reach_is_given_up_and_ends_when_it_comes_back(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder
) -> None:
    with LiveJob(folder, training, {**rank_env, "PAUSE_S": "0.05", "EPOCHS": "1000000"}, NODES).begin(
        "c1", "c2"
    ) as job:
        silent = job.pid("c2")
        os.kill(silent, signal.SIGSTOP)  # as a network that is cut: nobody hears of it
        job.until(lambda: job.sync.ranks == 1)
        job.goes_on()
        assert "no sign of life" in job.word.why
        os.kill(silent, signal.SIGCONT)
        job.until(lambda: job.pids("c2") == [])
        job.goes_on()
        job.stop()


def test_a_script_that_fails_on_one_rank_ends_the_job_and_the_rank_is_named(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = training.with_name("broken.py")
    broken.write_text(
        training.read_text().replace("job.step(loss)", "job.step(loss) and job.steps < 9 or 1 / job.world.rank")
    )
    with LiveJob(folder, broken, {**rank_env, "EPOCHS": "1000000"}, NODES).begin("c1", "c2") as job:
        assert job.end() == 1
        assert "rank 0 on c1 ended first: Exited with exit code 1" in capfd.readouterr().err


def test_a_half_done_step_is_undone() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    x = torch.randn(8, 3)
    model(x)
    boundary = Boundary(model)
    boundary.mark()
    once = model(x)
    mean = model[0].running_mean.clone()
    boundary.go_back()
    assert torch.equal(model(x), once)
    assert torch.equal(model[0].running_mean, mean)


def test_all_generators_go_back_with_it() -> None:
    def drawn() -> tuple[float, float, float, float]:
        return random.random(), float(np.random.random()), float(np.random.normal()), float(torch.rand(1))

    drawn()
    boundary = Boundary(torch.nn.Linear(1, 1))
    first = drawn()
    boundary.go_back()
    assert drawn() == first
    boundary.mark()
    second = drawn()
    boundary.go_back()
    assert drawn() == second
