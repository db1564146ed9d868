"""One lab for all stories of this room; each story leaves it empty."""

import os
from collections.abc import Iterator

import pytest

from ones_slurm.lab import Lab, LabSpec, packages


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("a lab needs root")
    if absent := packages.missing():
        pytest.skip(f"a lab needs packages: {' '.join(absent)}")
    with Lab(LabSpec(name=f"contract-{os.getpid()}", nodes=4, gpus_per_node=2, cpus_per_gpu=2)) as running:
        yield running
