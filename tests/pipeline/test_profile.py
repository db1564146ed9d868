"""`ones pipeline profile` measures what a block does, and `search` takes the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ones_slurm.cli.pipeline import command
from ones_slurm.model.errors import NotFound
from ones_slurm.pipeline import read_placement

pytestmark = pytest.mark.torch

MODEL = """
import time
import torch
from torch import nn
from ones_slurm.pipeline import by_name

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.02)
        return gradient

class Part(nn.Module):
    def __init__(self, seconds, last):
        super().__init__()
        self.seconds, self.last = seconds, last
        self.linear = nn.Linear(8, 8)
    def forward(self, batch, *inputs):
        time.sleep(self.seconds)
        y = Slow.apply(torch.tanh(self.linear(inputs[0] if inputs else batch)))
        return y.sum() if self.last else y

def build(device):
    return by_name("SHAPE"), {"F0": Part(0.01, False), "F1": Part(0.03, True)}, torch.ones(4, 8)
"""


@pytest.mark.parametrize("shape", ["V2", "ZB2"])
def test_the_file_that_profile_writes_holds_what_the_blocks_do(tmp_path: Path, shape: str) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("SHAPE", shape))
    target, found = f"{tmp_path / 'model.py'}:build", tmp_path / "blocks.toml"
    argv = ["profile", target, "-o", str(found), "--repeats", "2", "--link-gib-per-s", "1"]
    result = CliRunner().invoke(command, argv)
    assert result.exit_code == 0, result.output + repr(result.exception)
    blocks = {block.name: block for block in read_placement(found).blocks}
    assert blocks["F0"].time_us == pytest.approx(10_000, rel=0.5)
    assert blocks["F1"].time_us == pytest.approx(30_000, rel=0.5)
    if shape == "V2":
        assert blocks["B1"].time_us == pytest.approx(20_000, rel=0.5)
    floats = 4 * 8 * 4  # bytes of an activation: the input of the layer and the output of the tanh are kept
    assert blocks["F0"].memory == 2 * floats
    assert blocks["F0"].transfer_us == pytest.approx(floats / 2**30 * 1e6, rel=1e-6)
    assert sum(block.memory for block in blocks.values() if block.devices == (0,)) == 0
    searched = CliRunner().invoke(command, ["search", str(found), "-n", "4", "--budget", "2"])
    assert re.search(r"makespan +\d+", searched.output)


def test_a_target_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["profile", f"{tmp_path}/none.py:build", "-o", str(tmp_path / "x.toml")])
    assert isinstance(result.exception, NotFound)
