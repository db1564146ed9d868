"""One lab for all stories that leave it as they found it."""

from collections.abc import Iterator

import pytest
from own_lab import own_lab

from ones_slurm.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    with own_lab("test", nodes=3) as running:
        yield running
