"""`ones doctor`: is everything there that the co-scheduler needs, and what to do where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import plain

if TYPE_CHECKING:
    from ones_slurm.cli.checks import Check

COLORS = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


@click.command()
@click.option("--site", type=click.Path(), help="the site file to check  [default: the one of `ones`]")
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_context
def command(ctx: click.Context, site: str | None, as_json: bool) -> None:
    """Check this host for all that jobs, commands and onesd need; each fault comes with its remedy.

    Exits with 1 if something is at fault, with 4 if there is no Slurm at all.
    """
    import msgspec

    from ones_slurm.cli.checks import check_all

    checks = check_all(site or ctx.obj)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"version": 1, "checks": checks}), indent=1))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            click.echo(_line(check, width))
    if any(check.level == "FAIL" and check.name in {"slurm commands", "slurmctld"} for check in checks):
        ctx.exit(4)
    if any(check.level == "FAIL" for check in checks):
        ctx.exit(1)


def _line(check: Check, width: int) -> str:
    level = click.style(check.level.ljust(4), fg=COLORS[check.level])
    remedy = f"\n{'':{width + 6}}-> {plain(check.remedy)}" if check.remedy else ""
    return f"{level}  {check.name.ljust(width)}  {plain(check.finding)}{remedy}"
