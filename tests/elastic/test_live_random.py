"""Many changes in a row, drawn by chance: every size, batch and rate, and deaths at any moment."""

import json
import os
import pathlib
import random
import time

import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402

from .live_job import LiveJob  # noqa: E402
from .reference import SAMPLES, trained  # noqa: E402
from .test_training import final, furthest_apart, seen_samples  # noqa: E402

pytestmark = pytest.mark.torch

# `make soak` sets more; the suite has to be done in minutes.
CHANGES = int(os.environ.get("ONES_CHANGES", "10"))
SEED = int(os.environ.get("ONES_SEED", "1"))


NODES = tuple(f"c{number}" for number in range(1, 9))


def change_at_random(job: LiveJob, draw: random.Random, what: str) -> None:
    here = list(job.sync.nodes)
    there = draw.sample(NODES, draw.randint(1, 5 if what == "grow" else 4))
    if not set(there) & set(here):
        there[0] = draw.choice(here)
    if what == "rebatch":
        there = here
    elif what == "shrink":
        there = draw.sample(here, max(1, len(here) - 1))
    victim = draw.choice(here) if what.startswith("kill") and len(here) > 1 else None
    if what == "kill" and victim is not None:
        job.kill(victim)
        return
    order = job.order(*there, batch=draw.choice([0, 7, 13, 20, 32]), lr_scale=draw.choice([0.5, 1.0, 2.0]))
    if victim is not None:
        time.sleep(draw.random())
        for pid in job.pids(victim):
            os.kill(pid, 9)
    job.until(lambda: job.settled(order))
    job.daemon.order = None


def test_any_sequence_of_changes_and_deaths_learns_the_same_and_leaves_nothing_behind(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    draw = random.Random(SEED)
    stop = tmp_path / "stop"
    env = {**rank_env, "PAUSE_S": "0.03", "EPOCHS": "1000000", "STOP": str(stop)}
    with LiveJob(folder, training, env, NODES).begin("c1", "c2") as job:
        for change in range(CHANGES):
            what = draw.choice(["grow", "shrink", "move", "rebatch", "kill", "kill in a move"])
            change_at_random(job, draw, what)
            job.goes_on()
            print(
                f"{change}: {what} {job.sync.nodes} batch {job.sync.batch} formation {job.word.formation}", flush=True
            )
        aside = tmp_path / "stop.new"
        aside.write_text(str(job.word.progress.epoch + 20))  # far enough ahead that all ranks read it in time
        aside.rename(stop)
        assert job.end() == 0

        last = final(tmp_path)
        epochs = last["epoch"] + 1
        expected = trained(last["sizes"], epochs)
        assert last["steps"] == expected["steps"]
        assert furthest_apart(last, expected) < 1e-6
        assert seen_samples(tmp_path) == {epoch: list(range(SAMPLES)) for epoch in range(epochs)}
        assert [pid for step in job.steps.values() for pid in step.pids if pathlib.Path(f"/proc/{pid}").exists()] == []
        sockets = [json.loads(path.read_text()) for path in tmp_path.glob("sockets-*")]
        assert max(sockets) < 40, "connections of worlds that are gone stay open"
