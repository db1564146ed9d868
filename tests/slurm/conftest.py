"""One lab for all stories of this room; each story leaves it empty."""

from collections.abc import Iterator

import pytest
from own_lab import own_lab

from ones_slurm.lab import Lab


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[Lab]:
    with own_lab("contract", nodes=4, gpus_per_node=2, cpus_per_gpu=2) as running:
        yield running
