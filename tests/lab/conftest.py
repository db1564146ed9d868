"""One lab for all stories that leave it as they found it."""

import os
from collections.abc import Iterator

import pytest

from ones_slurm.lab import Lab, LabSpec, packages


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    if absent := packages.missing():
        pytest.skip(f"a lab needs packages: {' '.join(absent)}")
    with Lab(LabSpec(name=f"test-{os.getpid()}", nodes=3)) as running:
        yield running
