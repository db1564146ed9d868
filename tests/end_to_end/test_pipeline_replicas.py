"""A small GPT behind a shared embedding, trained as a pipeline of four ranks: onesd gives it a second replica and takes
it back, and it learns what the model in one piece learns."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "sbatch_templates/train/pipeline_gpt.py"
SHAPE = {"nodes": 2, "gpus_per_node": 4}
EPOCHS, SAMPLES = 6, 1024
# A replica that takes 5 ms a sample, so that the story has time on a fast machine as well.
SAMPLE_MS = 5

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(900)]


def losses(output: str) -> dict[int, float]:
    """The loss of each epoch, as last printed."""
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"epoch (\d+): loss ([\d.]+)", output)}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in one process."""
    pytest.importorskip("ortools")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "ONES_"))}
    env |= {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, str(SCRIPT), "--epochs", str(EPOCHS)]
    folder = tmp_path_factory.mktemp("alone")
    return losses(subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module")
def rescaled(site, alone):
    """The training between one and two replicas, because others come and go."""
    site.start_daemon()
    site.lab.run(["ones", "pipeline", "search", "M4", "-n", "8", "--memory", "5", "--budget", "2", "-o", "gpt.json"])
    guest = site.sbatch("--nodes=1", "--gres=gpu:4", "--wrap=sleep 900")
    job = site.sbatch(
        "--comment=ones:pipeline=gpt.json,replicas=1-2,batch=64-64",
        "--output=gpt-%j.out",
        CHECKOUT / "sbatch_templates/pipeline.sbatch",
        f"--epochs={EPOCHS}",
        f"--sample-ms={SAMPLE_MS}",
        env={"ONES_HOME": str(CHECKOUT)},
    )
    site.until(lambda: site.row(job).get("step"), "it trains as one replica", 60)
    table = site.row(job)["wish"]
    site.lab.run(["scancel", guest])
    site.until(lambda: site.nodes(job) == 2, "it gets a second replica", 60)
    site.until(lambda: site.row(job).get("move") is None, "both train", 60)
    guest = site.sbatch("--nodes=1", "--gres=gpu:4", "--time=1", "--wrap=sleep 5")
    site.until(lambda: site.nodes(job) == 1, "it gives the second replica back", 60)
    site.until(lambda: not site.in_queue(job), "it ends", 150)
    yield job, table
    assert site.stop_daemon() == 0


def test_it_was_moved_by_whole_replicas(site, rescaled):
    job, wish = rescaled
    done = [(move.from_nodes, move.to_nodes) for move in site.moves(job) if move.outcome == "done"]
    assert done[:2] == [(1, 2), (2, 1)]
    assert wish == "ones:pipeline=gpt.json,devices=4,replicas=1-2,batch=64-64", "how many devices it has told itself"


def test_it_learns_what_one_process_learns(site, rescaled, alone):
    job, _ = rescaled
    reached = losses((site.home / f"gpt-{job}.out").read_text())
    assert reached[EPOCHS - 1] == pytest.approx(alone[EPOCHS - 1], rel=1e-3)
    assert alone[EPOCHS - 1] < 0.8 * alone[0]


def test_its_schedules_are_searched_for_the_micro_batches_of_each_size(site, rescaled):
    job, _ = rescaled
    kept = json.loads((site.home / f"ones-runs/{job}/schedules.json").read_text())
    told = json.loads((site.home / f"ones-runs/{job}/pipeline.json").read_text())
    assert {"8", "4"} <= kept["plans"].keys() or kept["measured_us"], (
        "64 samples are 8 micro-batches, or 4 on each of 2"
    )
    assert (told["devices"], told["micro_batch"]) == (4, 8)
    seconds = [seconds for _, seconds in told["steps"]]
    assert len(seconds) >= 2
    assert seconds == sorted(seconds)
