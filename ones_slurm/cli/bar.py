"""Progress on a terminal, for commands that take longer than a look."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress() -> Iterator[Progress | None]:
    """Bars on standard error that are gone afterwards; None where that is no terminal, so that logs stay clean."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        yield shown


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """A single one; what it gives is told how many of `total` are over."""
    with progress() as shown:
        if shown is None:
            yield None
            return
        task = shown.add_task(what, total=total)
        yield lambda over: shown.update(task, completed=over)
