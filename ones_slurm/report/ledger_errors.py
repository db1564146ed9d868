"""What is said of a ledger that cannot be used: what was wrong, and what to do about it."""

from ones_slurm.model.errors import Failed

# What SQLite says of a file that is whole; of anything else it is the file that is wrong.
_BY_NAME = {
    "SQLITE_BUSY": "another report fills it: ask again later, or name another by --ledger",
    "SQLITE_FULL": "the disk is full: make room, or name another by --ledger",
    "SQLITE_READONLY": "it may only be read: name another by --ledger",
    "SQLITE_CANTOPEN": "it is no file, or may not be read: name another by --ledger",
    "SQLITE_IOERR": "the disk does not take or give it: see the kernel's log, or name another by --ledger",
}
_BROKEN = (
    "it is malformed, and was left as it is: delete it if it was a ledger, for all that is in it is read again from "
    "accounting; else name another by --ledger"
)


def unusable(place: str, error: Exception) -> Failed:
    """The error for a person, from that of SQLite or of a reader of what the ledger keeps."""
    name = getattr(error, "sqlite_errorname", "")
    hint = next((hint for begin, hint in _BY_NAME.items() if name.startswith(begin)), _BROKEN)
    return Failed(f"cannot use the ledger {place}: {error}", hint=hint)
