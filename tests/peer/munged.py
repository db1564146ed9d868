"""A munged of the test's own: private key, private socket, gone at the end."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

READY_WITHIN_S = 60.0


@contextlib.contextmanager
def own_munged() -> Iterator[str]:
    """Yields its socket, which every user of this machine can reach."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="munged-"))
    folder.chmod(0o755)
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    socket = folder / "socket"
    files = [f"--{name}-file={folder / name}" for name in ("key", "log", "pid", "seed")]
    munged = subprocess.Popen(
        ["munged", "--foreground", "--force", f"--socket={socket}", *files],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + READY_WITHIN_S
        while not socket.exists():
            assert munged.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, "munged did not start"
            time.sleep(0.02)
        yield str(socket)
    finally:
        munged.terminate()
        munged.wait(10)
        shutil.rmtree(folder)
