"""`ones ctl`: an administrator's hand on the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import plain
from ones_slurm.report.shown import show_time

if TYPE_CHECKING:
    from ones_slurm.daemon.answers import State


@click.group()
def command() -> None:
    """Pause, drain or resume onesd, and look at how far it goes.

    For root, the admins of the site file and the user who runs onesd. A restart of onesd changes nothing of it.

    The kill switch is `ones ctl pause`, or `systemctl stop onesd`: every job keeps running at the size that it has.
    """


@command.command()
@click.pass_obj
def pause(site: str | None) -> None:
    """Begin no move any more. Those under way are carried to their end; every job keeps its size."""
    _tell(site, "pause")


@command.command()
@click.pass_obj
def drain(site: str | None) -> None:
    """Pause, and give back all nodes that companions lend, until nothing is under way: then status says drained."""
    _tell(site, "drain")


@command.command()
@click.pass_obj
def resume(site: str | None) -> None:
    """Go on as the site file says."""
    _tell(site, "run")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_obj
def status(site: str | None, as_json: bool) -> None:
    """Print what onesd was told, what is under way, and how many jobs stand on which rung. For everybody."""
    import msgspec

    from ones_slurm.daemon.answers import State
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    state = Client(load_site(site).daemon).get("/v1/status", State)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(state), indent=1))
    else:
        _print(state)


def _tell(site: str | None, word: str) -> None:
    from ones_slurm.daemon.answers import State
    from ones_slurm.model.adoption import Control
    from ones_slurm.model.settings import load_site
    from ones_slurm.model.wire import Told
    from ones_slurm.peer.client import Client

    _print(Client(load_site(site).daemon).post("/v1/control", Told(Control(word)), State))


def _print(state: State) -> None:
    since = f", by {state.control_by} since {show_time(round(state.control_since_s))}" if state.control_by else ""
    words = {"run": "running", "pause": "paused", "drain": "drained" if state.drained else "draining"}
    lines = [
        ("onesd", f"{words[state.control]}{since}"),
        ("mode", f"{state.mode}, policy {state.policy}, tick {state.tick}"),
        ("under way", f"{state.moves} moves, {state.on_loan} jobs with nodes on loan"),
        ("jobs", ", ".join(f"{count} at {rung}" for rung, count in sorted(state.rungs.items())) or "none with a wish"),
        ("quiet", state.quiet),
        ("trouble", state.trouble),
    ]
    for name, value in lines:
        if value:
            click.echo(f"{name.ljust(10)} {plain(value)}")
