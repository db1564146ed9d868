"""`ones why JOBID`: each decision about a job, with its reason and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import plain

if TYPE_CHECKING:
    from ones_slurm.daemon.answers import Decision, Why


@click.command()
@click.argument("job_id", metavar="JOBID")
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_obj
def command(site: str | None, job_id: str, as_json: bool) -> None:
    """Print each decision about a job, oldest first, with its reason and its numbers."""
    import msgspec

    why = _ask(site, job_id)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(why), indent=1))
        return
    for decision in why.decisions:
        click.echo(plain(_line(decision)))


def _ask(site: str | None, job_id: str) -> Why:
    from ones_slurm.cli.show import job_path
    from ones_slurm.daemon.answers import Why
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    return Client(load_site(site).daemon).get(f"{job_path(job_id)}/why", Why)


def _line(decision: Decision) -> str:
    import datetime

    at = datetime.datetime.fromtimestamp(decision.at_s).astimezone().isoformat(" ", "seconds")
    size = [f"{value} {word}" for word, value in (("nodes", decision.nodes), ("batch", decision.batch)) if value]
    numbers = [f"{name}={value:g}" for name, value in decision.numbers.items()]
    head = " ".join([at, f"tick {decision.tick}", decision.what, *size])
    tail = f" ({', '.join(numbers)})" if numbers else ""
    return f"{head}: {decision.reason}{tail}" if decision.reason else head + tail
