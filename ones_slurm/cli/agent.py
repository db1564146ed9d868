"""`ones agent`: submits companions for this user's jobs from a login node, where compute nodes may not."""

import pathlib
import shutil
import sys
import time

import click

from ones_slurm.elastic.lending import join_command
from ones_slurm.elastic.runfolder import RunFolder
from ones_slurm.elastic.submitter import Submitter
from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable, UsageError
from ones_slurm.model.settings import load_site, site_path
from ones_slurm.model.wire import Loan
from ones_slurm.peer.client import Client

# Ours: a growth waits this long for its companion at most, and onesd minds no such question.
_ASK_EVERY_S = 2.0
_AWAY_S = 15.0


@click.command()
@click.pass_obj
def command(site: str | None) -> None:
    """Submit companions for your jobs, for as long as this runs.

    A companion is a further job that lends nodes to one of yours while it trains; onesd says when one is wanted. Needed
    only where the site file says companions = "agent": leave it running on a login node, in tmux or by a user's
    systemd. Interrupt it at any time: your jobs then keep their sizes, or grow by requeues.
    """
    settings, path = load_site(site), site_path(site)
    if settings.moves.companions != "agent":
        raise UsageError(
            f'nobody needs an agent here: companions = "{settings.moves.companions}"',
            hint='agents serve sites whose site file says moves.companions = "agent"',
        )
    starter = _ones_run()
    client = Client(settings.daemon)

    def join_of(loan: Loan) -> tuple[str, ...]:
        folder = RunFolder(loan.folder)
        folder.visit()
        return join_command(starter, loan.job_id, folder, path)

    submitter = Submitter(client, join_of)
    click.echo("ones: the agent is ready", err=True)
    said = ""
    while True:
        try:
            for loan in client.loans().loans:
                submitter.serve(loan)
            pause_s, trouble = _ASK_EVERY_S, ""
        except Unreachable as error:
            pause_s, trouble = _AWAY_S, error.message
        except (NotAllowed, NotFound) as error:
            pause_s, trouble = _ASK_EVERY_S, error.message
        if trouble and trouble != said:
            click.echo(f"ones: {trouble}; asks again", err=True)
        said = trouble
        time.sleep(pause_s)


def _ones_run() -> str:
    """The `ones-run` of this installation."""
    beside = pathlib.Path(sys.argv[0]).absolute().with_name("ones-run")
    checkout = pathlib.Path(__file__).resolve().parents[2] / "wrappers" / "ones-run"
    found = next((str(path) for path in (beside, checkout) if path.is_file()), None) or shutil.which("ones-run")
    if found is None:
        raise NotFound("there is no ones-run beside this command or on PATH", hint="install ones-slurm where jobs run")
    return found
