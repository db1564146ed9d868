"""Where `ones report` and `ones eff` have the past from: a ledger, brought up to date before it is asked."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ones_slurm.daemon.answers import Why
    from ones_slurm.engine.journal import Journal
    from ones_slurm.engine.records import Holding, MoveRow, Point
    from ones_slurm.model.settings import Daemon, Site
    from ones_slurm.report.ledger import Ledger
    from ones_slurm.report.selection import Selection


@contextmanager
def books(
    site: Site, selection: Selection, *, dump: Path | None = None, ledger: Path | None = None
) -> Iterator[Ledger]:
    """The ledger that knows the selected jobs.

    A dump goes into the named ledger, or into one that is gone afterwards. A ledger that is named without one is asked
    as it stands. Else it is our own, and what it does not know yet is asked of Slurm.
    """
    from ones_slurm.report.dump import Saved
    from ones_slurm.report.ledger import Ledger
    from ones_slurm.report.refresh import refresh
    from ones_slurm.slurm.cli_client import CommandClient

    per_node = {name: partition.gpus_per_node for name, partition in site.partitions.items()}
    if dump is not None:
        with Ledger.open(ledger, gpus_per_node=per_node) as opened:
            opened.take_saved(Saved(dump))
            yield opened
    elif ledger is not None:
        with Ledger.open(ledger) if os.access(ledger, os.W_OK) else Ledger.read(ledger) as opened:
            yield opened
    else:
        client = CommandClient()
        with Ledger.open(_own_place(site.daemon), gpus_per_node=per_node) as opened:
            refresh(opened, client, selection, now_s=time.time())
            yield opened


def learn(ledger: Ledger, selection: Selection, daemon: Daemon, journal: Journal | None, *, may_ask: bool) -> None:
    """Has what the journal knows of the selected jobs in the ledger, or what `onesd` tells who may not read that."""
    unsettled = ledger.unsettled(selection)
    if not unsettled:
        return
    if journal is not None:
        known = journal.jobs()
        ledger.learn(journal, [job_id for job_id, _ in unsettled if job_id in known], now_s=ledger.until_s)
    elif may_ask:
        asked = Asked(daemon)
        answered = [job_id for job_id, elastic in unsettled if elastic and asked.answers(job_id)]
        ledger.learn(asked, answered, now_s=ledger.until_s)


def warn(text: str) -> None:
    """What is odd goes to stderr, so that the tables stay whole."""
    click.echo(f"ones: {text}", err=True)


class Asked:
    """What `onesd` answers about jobs. The first question that it does not answer at all is the last one."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._silent = False
        self._answers: dict[str, Why | None] = {}

    def answers(self, job_id: str) -> bool:
        """Whether it answers at all; of a job of somebody else, or of a time before it, it has nothing to tell."""
        if not self._silent:
            self._answers[job_id] = self._ask(job_id)
        return not self._silent

    def moves(self, job_id: str) -> Sequence[MoveRow]:
        answer = self._answers.get(job_id)
        return answer.moves if answer is not None else ()

    def holdings(self, job_id: str) -> Sequence[Holding]:
        answer = self._answers.get(job_id)
        return answer.holdings if answer is not None else ()

    def points(self, job_id: str) -> Sequence[Point]:
        answer = self._answers.get(job_id)
        return answer.points if answer is not None else ()

    def _ask(self, job_id: str) -> Why | None:
        from urllib.parse import quote

        from ones_slurm.daemon.answers import Why
        from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable
        from ones_slurm.peer.client import Client

        try:
            return Client(self._daemon).get(f"/v1/jobs/{quote(job_id, safe='')}/why", Why)
        except Unreachable as error:
            self._silent = True
            warn(f"no batches and moves, for {error.message}")
        except (NotAllowed, NotFound):
            pass
        return None


def journal_path(daemon: Daemon, named: Path | None, *, live: bool) -> Path | None:
    """The journal that may be read: the one that was named, or the daemon's own beside a live Slurm."""
    if named is not None or not live:
        return named
    return daemon.journal if os.access(daemon.journal, os.R_OK) else None


def _own_place(daemon: Daemon) -> Path | None:
    """Beside the journal for who keeps that, else in the user's own state folder; None where neither can be written."""
    state = Path(daemon.state_dir)
    if os.access(state, os.W_OK):
        return state / "ledger.sqlite"
    own = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "ones-slurm"
    try:
        own.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home folder at all
        return None
    return own / f"ledger-{_cluster()}.sqlite" if os.access(own, os.W_OK) else None


def _cluster() -> str:
    """The name of the cluster here: one home may serve several."""
    import re

    from ones_slurm.slurm.command import ANSWER_WITHIN_S, ask, run_here

    config = ask(run_here, "scontrol", "show", "config", timeout_s=ANSWER_WITHIN_S)
    found = re.search(r"^ClusterName\s*=\s*([\w.-]+)\s*$", config, re.MULTILINE)
    return found[1] if found else "cluster"
