"""All or nothing in an SQLite file, for the journal and for whoever keeps a file like it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """What is done within it is kept as a whole, or not at all when anything is raised; `sqlite3.Error` passes.

    For connections with `isolation_level=None`. The write lock is taken at the beginning, so that nobody comes between.
    """
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise
