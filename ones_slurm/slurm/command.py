"""Runs one of Slurm's commands and says in our words how it went."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from ones_slurm.model.errors import NotAllowed, NotFound, OnesError, Unreachable
from ones_slurm.slurm.client import Refused

# C locale so that errors can be recognised; dates as Unix seconds, and in UTC where a command takes no such format
# (sacct -S); task lists of arrays uncut.
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
# Ours: Slurm's own MessageTimeout is 10 s and its commands try more than once; a whole queue takes longer.
ANSWER_WITHIN_S = 60.0


class Busy(Refused):
    """Slurm cannot do it at this very moment and says so; the same command will work a second later."""


_KINDS: tuple[tuple[type[OnesError], str, str | None], ...] = (
    (Busy, "DB index is being set|temporarily unavailable", None),
    (
        Unreachable,
        "unable to contact slurm|timed out|connection refused|configuration source|zero bytes were|problem talking to "
        "the database|unable to connect to database|no route to host|unable to (?:reach|resolve)|"
        # a slurmctld that ends or comes up just then
        r"unexpected message received|message (?:send|receive) failure|communication \w+ failure",
        "is slurmctld (for sacct: slurmdbd) up? try `scontrol ping`",
    ),
    (Unreachable, "munge|authenticat", "is munged running here, with the cluster's key?"),
    (NotAllowed, r"access/permission denied|invalid user id|access denied|not permitted", None),
    (NotFound, "invalid job id", None),
)


class Runner(Protocol):
    """Runs a command to its end. Tests hand in one that runs it elsewhere."""

    def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float
    ) -> "subprocess.CompletedProcess[str]":
        """`env` is added to the environment. Raises `TimeoutExpired`, and `OSError` when it cannot be started."""
        ...


def run_here(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Runs a command on this machine. What is not UTF-8 (in a user's comment, say) becomes a replacement mark."""
    return subprocess.run(
        argv,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def ask(runner: Runner, *argv: str, timeout_s: float = ANSWER_WITHIN_S) -> str:
    """What the command prints. Raises `Unreachable`, `NotAllowed`, `NotFound` or `Refused` with Slurm's words."""
    try:
        done = runner(argv, env=ENVIRONMENT, timeout_s=timeout_s)
    except FileNotFoundError as error:
        raise Unreachable(
            f"there is no {argv[0]} on this machine",
            hint="run this where Slurm's commands are (Debian: package slurm-client), or add them to PATH",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"{argv[0]} did not answer within {timeout_s:g} s", hint="slurmctld is slow or down; see `sdiag`"
        ) from error
    except OSError as error:
        raise Unreachable(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        raise failure(argv, done.stderr.strip() or done.stdout.strip(), done.returncode)
    return done.stdout


def failure(argv: Sequence[str], words: str, code: int) -> OnesError:
    """The error of ours for what a command of Slurm said."""
    said = "; ".join(dict.fromkeys(line.strip() for line in words.splitlines() if line.strip())) or f"exit code {code}"
    message = f"{' '.join(argv[:2])}: {said[:500]}"
    for kind, pattern, hint in _KINDS:
        if re.search(pattern, words, re.IGNORECASE):
            return kind(message, hint=hint)
    return Refused(message)
