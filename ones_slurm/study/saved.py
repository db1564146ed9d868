"""What somebody saved of `sacct`, as text or as JSON."""

import pathlib


def is_saved(path: pathlib.Path) -> bool:
    """Whether a file looks like an answer of sacct, rather than like a trace."""
    try:
        with path.open("rb") as file:
            heading = file.read(4096).partition(b"\n")[0]
    except OSError:
        return False
    return _is_json(path) or b"JobID" in heading.strip().split(b"|")


def _is_json(path: pathlib.Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(1024).lstrip().startswith(b"{")
    except OSError:
        return False  # the reader of text says why
