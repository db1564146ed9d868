"""Some broken inputs for every reader of outside text, always the same ones; `make fuzz` tries many more."""

import tempfile
from pathlib import Path

import pytest
from fuzz import try_out
from readers import readers

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def test_broken_text_is_read_or_refused_and_nothing_else() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ones-fuzz-") as folder:
        for reader in readers(Path(folder)):
            told = try_out(reader, seed=20261130, count=500)
            assert (reader.name, [why for why, _ in told.faults]) == (reader.name, [])
            assert told.read >= 1, f"{reader.name} reads not even what is right"
