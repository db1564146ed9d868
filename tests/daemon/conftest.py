import os
import shutil
import sys

import pytest

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..", "peer")]  # noqa: PTH118, PTH120


@pytest.fixture(scope="session")
def munge_socket():
    from munged import own_munged

    if shutil.which("munged") is None or os.geteuid() != 0:
        pytest.skip("needs munged, and root to give it a key")
    with own_munged() as socket:
        yield socket
