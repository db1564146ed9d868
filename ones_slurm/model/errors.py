"""One vocabulary of failure, so that every command can say what was wrong, what would be right, and exit by class."""

from typing import ClassVar


class OnesError(Exception):
    """Something that a person has to know about; printed without a traceback unless `--debug` is given.

    `message` says what was wrong, `hint` what would be right or where the log is. `exit_code` is the class of
    failure that a calling script can test (the codes are listed in `docs/architecture.md`).
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class Failed(OnesError):
    """The request was understood and allowed, and did not work."""


class UsageError(OnesError):
    """What the user wrote cannot be right: an option, a comment, a site file. Nothing was changed."""

    exit_code = 2


class NotAllowed(OnesError):
    """The caller may not do this: another user's job, missing rights, a site that forbids it."""

    exit_code = 3


class Unreachable(OnesError):
    """Slurm or `onesd` does not answer; the outcome of what was asked may be unknown."""

    exit_code = 4


class NotFound(OnesError):
    """There is no such job, partition, node or file."""

    exit_code = 5
