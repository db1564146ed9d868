"""`ones pipeline`, as people type it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from click.testing import CliRunner

from ones_slurm.cli.pipeline import command
from ones_slurm.pipeline import read_plan

ROOT = Path(__file__).parents[2]


def ones_pipeline(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def test_search_prints_the_verdict_and_leaves_a_plan_that_show_draws(tmp_path: Path) -> None:
    plan, picture = str(tmp_path / "plan.json"), tmp_path / "plan.svg"
    said = ones_pipeline("search", "M4", "-n", "32", "--memory", "5", "--budget", "5", "-o", plan)
    assert "period       6 us per micro-batch, proven" in said
    assert "1f1b+        266 us" in said
    assert read_plan(Path(plan)).makespan_us <= 204
    drawn = ones_pipeline("show", plan, "--svg", str(picture), "--width", "100")
    rows = drawn.splitlines()
    assert [row[0] for row in rows[:4]] == list("0123")
    assert len({len(row) for row in rows[:4]}) == 1
    titles = [e.text for e in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert sum(1 for title in titles if title and "of micro-batch" in title) == 32 * (2 * 4 + 8)


def test_show_draws_1f1b_as_the_textbook_does() -> None:
    drawn = ones_pipeline("show", "V2", "--times", "1,2,1", "-n", "2", "--preset", "1f1b", "--width", "41")
    assert drawn.splitlines()[:2] == [
        "0 |F0--F1--........B0------....B1------|",
        "1 |....F0--B0------F1--B1------........|",
    ]


def test_the_options_are_these() -> None:
    """A change here is a change for every script that calls us."""
    found = {
        name: sorted(max(param.opts, key=len) for param in sub.params if param.opts[0].startswith("-"))
        for name, sub in command.commands.items()
    }
    shape = ["--inference", "--memory", "--micro-batches", "--times"]
    assert found == {
        "search": sorted([*shape, "--budget", "--json", "--output"]),
        "show": sorted([*shape, "--preset", "--svg", "--width"]),
        "profile": ["--device", "--link-gib-per-s", "--output", "--repeats"],
    }


def test_json_is_for_programs() -> None:
    answer = json.loads(ones_pipeline("search", "K4", "-n", "4", "--json", "--budget", "5"))
    assert answer["version"] == 1
    assert answer["period_us"] in (6, None)
    assert answer["verdict"]["faults"] == []


def test_wrong_use_is_explained() -> None:
    for arguments in (["search", "Q9"], ["search", "V4", "--memory", "much"], ["show", "V4", "--preset", "none"]):
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code
        assert getattr(result.exception, "hint", None)


def test_ctrl_c_takes_the_best_so_far() -> None:
    argv = [sys.executable, "-c", "from ones_slurm.cli.pipeline import command; command()"]
    argv += ["search", "X8", "--memory", "5", "-n", "64", "--budget", "200"]
    process = subprocess.Popen(
        argv, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    said, complaint = process.communicate(timeout=30)
    assert process.returncode == 0, complaint
    assert "(stopped early)" in said
    assert "makespan" in said
