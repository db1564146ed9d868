"""One daemon to a state folder: two would send a job two orders."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from ones_slurm.model.errors import Failed, NotAllowed


@contextlib.contextmanager
def only_one(state_dir: pathlib.Path) -> Iterator[None]:
    """Holds the folder's lock; the kernel takes it back when the process ends, however it ends.

    Makes the folder if there is none. Raises `Failed` with the other daemon's pid, or `NotAllowed`.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(state_dir / "onesd.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise NotAllowed(
            f"the state folder {state_dir} cannot be written: {error.strerror}",
            hint="set daemon.state_dir in the site file to a folder of the user that onesd runs as",
        ) from error
    except OSError as error:
        raise Failed(f"the state folder {state_dir} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 20, 0).decode(errors="replace").strip() or "unknown"
            raise Failed(
                f"another onesd (pid {pid}) works on {state_dir}",
                hint="stop that one first, or give this one its own daemon.state_dir",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
