"""The decisions do not know for what kind of cluster they are made."""

import pathlib
import re

import pytest

import ones_slurm

ROOT = pathlib.Path(ones_slurm.__file__).parent


@pytest.mark.parametrize("room", ["engine", "policy"])
def test_the_decisions_never_say_what_carries_them_out(room):
    sources = sorted((ROOT / room).rglob("*.py"))
    assert len(sources) > 4
    for source in sources:
        text = source.read_text(encoding="utf-8").replace("ones_slurm", "").replace("ones-slurm", "")
        assert not re.search(r"slurm|simulat", text, re.IGNORECASE), f"{source} says it"
