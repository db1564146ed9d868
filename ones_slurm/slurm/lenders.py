"""Who submits companions here, as the site file says."""

import os
import pwd
from typing import Protocol

from ones_slurm.model.companion import sbatch_line
from ones_slurm.model.settings import Site
from ones_slurm.model.wire import Loan, Sync
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.command import Runner, ask, run_here


class Lender(Protocol):
    """One way of getting companions."""

    def can_lend(self, user: str, sync: Sync, now_s: float) -> bool:
        """Whether a companion for a job of this user could be submitted now."""
        ...

    def lend(self, user: str, loan: Loan, sync: Sync) -> None:
        """Begins it. Raises `Refused`, `NotAllowed` or `Unreachable` with Slurm's words; the outcome of the last is
        unknown, so whoever asks again looks into the queue first."""
        ...


class OwnSubmission:
    """This very process submits: for its own user, and as root for all of them.

    `sbatch --uid` is root's alone, so a SlurmUser or an operator cannot act for others.
    """

    def __init__(self, runner: Runner = run_here, user: str | None = None) -> None:
        self._runner = runner
        self._user = user or _own_name()

    def can_lend(self, user: str, sync: Sync, now_s: float) -> bool:  # noqa: ARG002
        """Of the job it is only needed how one joins it."""
        return bool(sync.join) and self._user in ("root", user)

    def lend(self, user: str, loan: Loan, sync: Sync) -> None:
        """One `sbatch`. What it runs is the user's own word and runs as that user."""
        ask(self._runner, *sbatch_line(loan, sync.join, "" if user == self._user else user))


class Request:
    """Somebody else submits: the job in its batch step, or with `agents` its user's agent on a login node."""

    def __init__(self, board: Board, *, agents: bool) -> None:
        self._board, self._agents = board, agents

    def can_lend(self, user: str, sync: Sync, now_s: float) -> bool:
        """A job that speaks can submit; an agent has to be there."""
        return bool(sync.join) and (not self._agents or self._board.loans.has_agent(user, now_s))

    def lend(self, user: str, loan: Loan, sync: Sync) -> None:  # noqa: ARG002
        """Written down for whoever comes by."""
        self._board.ask_for(user, loan)


def lender_of(site: Site, board: Board) -> Lender | None:
    """Who submits companions at this site; None where nobody does."""
    if site.moves.companions == "none":
        return None
    if site.moves.companions == "daemon":
        return OwnSubmission()
    return Request(board, agents=site.moves.companions == "agent")


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
