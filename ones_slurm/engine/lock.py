"""One writer at a time: a lock file beside the journal, held by the kernel for as long as the process lives."""

import fcntl
import os
import pathlib

from ones_slurm.model.errors import Failed


def take_lock(journal: pathlib.Path) -> int:
    """The lock's file descriptor; closing it, or dying in any way, lets the next one in.

    Raises `Failed` with the holder's process id when somebody else writes.
    """
    place = journal.with_name(journal.name + ".lock")
    lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise Failed(
            f"the journal {journal} is being written by another onesd (process {holder})",
            hint="stop it first, or give this one a state_dir of its own",
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
