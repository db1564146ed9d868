"""What all tests share."""

import os
import shutil

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# For worlds that a test makes without `ones-rank`, which sets it for the same reason.
os.environ.setdefault("USE_LIBUV", "0")


@pytest.fixture(scope="session")
def munge_socket():
    """A munged of our own, with a key of its own."""
    from munged import own_munged

    if shutil.which("munged") is None or os.geteuid() != 0:
        pytest.skip("needs munged, and root to give it a key")
    with own_munged() as socket:
        yield socket
