"""What all tests share."""

import os
import shutil

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# For worlds that a test makes without `ones-rank`, which sets it for the same reason.
os.environ.setdefault("USE_LIBUV", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A story of many real processes is told a second time before it counts as failed, and pytest names it (RERUN).

    These run two at a time on machines that others use too; what fails there by chance once in a thousand stories is
    worth a look, and not the whole suite. A fault that shows twice in a row fails.
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in ("slurm", "mpi")):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def munge_socket():
    """A munged of our own, with a key of its own."""
    from munged import own_munged

    if shutil.which("munged") is None or os.geteuid() != 0:
        pytest.skip("needs munged, and root to give it a key")
    with own_munged() as socket:
        yield socket
