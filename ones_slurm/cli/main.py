"""`ones`: one group, whose subcommands are imported when they are called, so that each starts fast."""

import importlib
from typing import Any

import click

from ones_slurm.model.errors import OnesError
from ones_slurm.model.settings import DEFAULT_PATH

# One file each in this folder; a name here is a module that exports `command`.
SUBCOMMANDS = (
    "agent",
    "ctl",
    "doctor",
    "eff",
    "info",
    "lab",
    "page",
    "pipeline",
    "plan",
    "queue",
    "report",
    "show",
    "sim",
    "submit",
    "trace",
    "version",
    "why",
)


class Lazy(click.Group):
    """Knows its subcommands by name, and imports one only to run it or to print its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click asks so
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUBCOMMANDS:
            return None
        found: click.Command = importlib.import_module(f"ones_slurm.cli.{cmd_name}").command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OnesError as error:
            if ctx.params["debug"]:
                raise
            click.echo(f"ones: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="show the whole traceback of an error")
@click.option("--site", type=click.Path(), help=f"the site file  [default: $ONES_SITE or {DEFAULT_PATH}]")
@click.pass_context
def ones(ctx: click.Context, debug: bool, site: str | None) -> None:  # noqa: ARG001 -- read by Lazy.invoke
    """Elastic training jobs on Slurm: submit them, watch them, ask why.

    Exit codes: 0 fine, 1 failed, 2 wrong use, 3 not allowed, 4 Slurm or onesd not reachable, 5 nothing found.
    """
    ctx.obj = site


def main() -> None:
    """The console script."""
    ones(prog_name="ones")


if __name__ == "__main__":
    main()
