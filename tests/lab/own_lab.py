"""A lab of a story's own: with the process id in its name, so that several suites can run at a time."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from ones_slurm.lab import Lab, LabSpec, packages


def need_lab() -> None:
    """Skips the story where there can be no lab."""
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    if absent := packages.missing():
        pytest.skip(f"a lab needs packages: {' '.join(absent)}")


@contextlib.contextmanager
def own_lab(name: str, **shape: Any) -> Iterator[Lab]:
    """Up within the block and gone after it; where there can be none the story is skipped. `shape` as for `LabSpec`."""
    need_lab()
    with Lab(LabSpec(name=f"{name}-{os.getpid()}", **shape)) as running:
        yield running
