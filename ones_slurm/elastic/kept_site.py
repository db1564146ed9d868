"""The site file as it was when a run began, for a restart that finds it broken.

A job that `onesd` puts back in the queue starts anew minutes later. An edit in a hurry must not cost it its life then.
"""

import os
import pathlib
import sys

from ones_slurm.elastic.runfolder import RunFolder, write_whole
from ones_slurm.model.errors import OnesError, UsageError
from ones_slurm.model.settings import Site, load_site, site_path

_NAME = "site.toml"


def read_site(folder: RunFolder, given: str | os.PathLike[str] | None) -> Site:
    """The site file that applies, or where it cannot be read the one that this run began with, and then says so.

    Raises `UsageError` as `load_site` does where no run has begun.
    """
    try:
        return load_site(given)
    except UsageError as error:
        kept = _kept(folder)
        if kept is None:
            raise
        print(f"ones-run: {error}\n  going on with the site file as it was", file=sys.stderr, flush=True)
        return kept


def keep_site(folder: RunFolder, given: str | os.PathLike[str] | None) -> None:
    """Keeps what applies now, if it is in order. A disk that is full must not end the training."""
    path = site_path(given)
    try:
        if path is not None:
            load_site(path)
            write_whole(folder.path / _NAME, pathlib.Path(path).read_bytes())
    except (OSError, UsageError):
        return


def _kept(folder: RunFolder) -> Site | None:
    place = folder.path / _NAME
    try:
        folder.visit()
        return load_site(place) if place.is_file() else None
    except OnesError:
        return None
