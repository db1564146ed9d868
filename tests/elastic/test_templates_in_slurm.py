"""Each template does its work on a real Slurm exactly as it is shipped, side by side with the others."""

import importlib.util
import json
import pathlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from own_lab import own_lab

from ones_slurm.lab import Lab

pytest.importorskip("torch")
pytest.importorskip("mpi4py")

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(600)]

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


class Template(NamedTuple):
    """What it needs beyond torch, what it trains on, and within which bounds the figure of its last line lies."""

    name: str
    needs: tuple[str, ...]
    samples: int
    figure: str
    low: float
    high: float


TEMPLATES = [
    Template("gpt", (), 3 * 1024, "loss", 0.0, 3.0),
    Template("resnet", (), 3 * 640, "loss", 0.0, 2.0),
    Template("lightning", ("lightning", "sklearn"), 8 * 1437, "accuracy", 0.9, 1.0),
    Template("huggingface", ("transformers", "accelerate"), 2 * 1024, "loss", 0.0, 3.5),
]
_WITHIN_S = 500


@pytest.fixture(scope="module")
def jobs() -> Iterator[tuple[Lab, dict[str, str]]]:
    """The ids of all of them, submitted at once; each that can run has a node."""
    with own_lab("templates", nodes=4, gpus_per_node=2) as lab:
        env = {"ONES_HOME": str(CHECKOUT), "PYTHONPATH": str(CHECKOUT)}
        ids = {}
        for template in TEMPLATES:
            if all(importlib.util.find_spec(package) for package in template.needs):
                path = str(CHECKOUT / "sbatch_templates" / f"{template.name}.sbatch")
                ids[template.name] = lab.run(["sbatch", "--parsable", path], env=env).stdout.strip()
        yield lab, ids


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_trains(template: Template, jobs: tuple[Lab, dict[str, str]]) -> None:
    lab, ids = jobs
    if template.name not in ids:
        pytest.skip(f"needs {' and '.join(template.needs)}")
    job_id = ids[template.name]
    deadline = time.monotonic() + _WITHIN_S
    home, of_job = lab.folder / "home" / "user1", ["-h", "-j", job_id, "-o", "%T"]
    while (state := lab.run(["squeue", *of_job], check=False).stdout.strip()) not in ("", "COMPLETED", "FAILED"):
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    (output,) = home.glob(f"*-{job_id}.out")
    said = output.read_text()
    generations = home / "ones-runs" / job_id / "generations.jsonl"
    assert generations.exists(), said
    (only,) = map(json.loads, generations.read_text().splitlines())
    assert (only["ended_why"], only["ranks"], only["last_samples"]) == ("finished", 2, template.samples), said
    last = [line for line in said.splitlines() if line.startswith(f"{template.figure} ")][-1]
    assert template.low <= float(last.removeprefix(f"{template.figure} ").split(",")[0]) <= template.high
