"""`ones plan`: what the policy wants now and which actions would follow; nothing is done by asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import Column, show

if TYPE_CHECKING:
    from ones_slurm.daemon.answers import PlanNow
    from ones_slurm.model.plan import Action, Target


def _size(action: Action) -> str:
    """The node count that an action leads to; a rebatch leaves it as it is."""
    held = getattr(action, "keep", getattr(action, "allocation", None))
    return str(len(held)) if held is not None else str(getattr(action, "nodes", "-"))


TARGETS: tuple[Column[Target], ...] = (
    Column("jobid", lambda target: target.job_id, right=True),
    Column("nodes", lambda target: str(target.nodes), right=True),
    Column("batch", lambda target: str(target.batch or "-"), right=True),
    Column("lr", lambda target: f"x{target.lr_scale:g}", right=True),
    Column("reason", lambda target: target.reason),
)
ACTIONS: tuple[Column[Action], ...] = (
    Column("jobid", lambda action: action.job_id, right=True),
    Column("action", lambda action: type(action).__name__.lower()),
    Column("nodes", _size, right=True),
    Column("batch", lambda action: str(action.batch or "-"), right=True),
    Column("gen", lambda action: str(action.generation), right=True),
    Column("reason", lambda action: action.reason),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_obj
def command(site: str | None, as_json: bool) -> None:
    """Print what the policy wants now, the actions that follow from it, and its advice on jobs that are not moved."""
    import msgspec

    from ones_slurm.daemon.answers import PlanNow
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    plan = Client(load_site(site).daemon).get("/v1/plan", PlanNow)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    else:
        _print(plan)


def _print(plan: PlanNow) -> None:
    click.echo(f"policy {plan.policy}, tick {plan.tick}: {len(plan.targets)} targets, {len(plan.actions)} actions")
    if plan.targets:
        show(TARGETS, plan.targets)
    if plan.actions:
        click.echo()
        show(ACTIONS, plan.actions)
    if plan.advice:
        click.echo("\nadvice, on which nobody acts but the user:")
        show(TARGETS, plan.advice)
