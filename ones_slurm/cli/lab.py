"""`ones lab`: a throw-away Slurm cluster on this machine, to try things on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from ones_slurm.lab.spec import ProfileName

DEFAULT_NAME = "lab"
PROFILE_NAMES = ("gres", "whole-node")

_name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="which lab, if there are several")


@click.group(name="lab")
def command() -> None:
    """A throw-away Slurm cluster on this machine: real daemons, fake GPUs, nothing left behind."""


@command.command()
@_name
@click.option("--nodes", "-N", default=4, show_default=True, help="how many nodes, c1 ...")
@click.option("--gpus", "gpus_per_node", default=4, show_default=True, help="fake GPUs of each node")
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    default="gres",
    show_default=True,
    help="gres: GPUs are counted by Slurm; whole-node: Slurm hands out nodes and knows of no GPU",
)
@click.option("--folder", type=click.Path(path_type=Path), help="where its files go  [default: /var/tmp/ones-lab/NAME]")
def up(name: str, nodes: int, gpus_per_node: int, profile: str, folder: Path | None) -> None:
    """Start a lab; returns when every node is idle."""
    from ones_slurm.lab import Lab, LabSpec

    spec = LabSpec(
        name=name, nodes=nodes, gpus_per_node=gpus_per_node, profile=cast("ProfileName", profile), folder=folder
    )
    with _progress(name) as say:
        Lab(spec).up(say)


@command.command()
@_name
@click.option("--all", "every", is_flag=True, help="end every lab on this machine")
def down(name: str, every: bool) -> None:
    """End a lab and remove its folder, also one that has crashed half-way."""
    from ones_slurm.lab import Lab, lab_names

    for each in lab_names() if every else [name]:
        Lab.attach(each).down()


@command.command()
def packages() -> None:
    """Install the Debian packages of a lab that are missing; no service is started or enabled by it."""
    from ones_slurm.lab.packages import ensure

    ensure()


@command.command()
def status() -> None:
    """List the labs on this machine, one a line: name, state, nodes x GPUs, profile, folder."""
    from ones_slurm.lab import Lab, lab_names

    for name in lab_names():
        lab = Lab.attach(name)
        click.echo(f"{name} {lab.condition} {lab.spec.nodes}x{lab.spec.gpus_per_node} {lab.spec.profile} {lab.folder}")


@command.command()
@_name
@click.option("--user", "-u", default="user1", show_default=True, help="user1, user2, operator or root")
@click.option("--host", default="login", show_default=True, help="login, head or a node")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, user: str, host: str, argv: tuple[str, ...]) -> None:
    """Be a user of the lab: a shell on the login host, or one command after `--`."""
    from ones_slurm.lab import Lab

    process = Lab.attach(name).popen(argv or ["bash"], user=user, host=host)
    # Ctrl-C is for the command, which the terminal tells itself; we stay to hand on its exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(process.wait())


@contextmanager
def _progress(name: str) -> Iterator[Callable[[str], None]]:
    """Each step as it begins: on one line that goes away on a terminal, as plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda step: click.echo(f"lab {name}: {step}", err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status(f"lab {name}") as line:
        yield lambda step: line.update(f"lab {name}: {step}")
