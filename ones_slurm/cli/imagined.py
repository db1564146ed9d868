"""The options that describe an imagined cluster, shared by the commands that run one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ones_slurm.sim.nodes import NodeKind
    from ones_slurm.study.setting import Setting


# For commands that imagine a past.
assume_option = click.option(
    "--assume",
    type=click.FloatRange(1),
    default=1.0,
    show_default=True,
    help="take long whole-node jobs as elastic, up to so many times their size; 1: only those with a wish",
)


def cluster_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that describe the imagined cluster, in the order of the help."""
    for option in reversed(
        (
            click.option(
                "--nodes",
                default="16",
                show_default=True,
                help="so many equal nodes, or kinds: COUNTxGPUS:TYPE*SPEED:PARTITION@RACK,…",
            ),
            click.option("--gpus-per-node", type=click.IntRange(1), default=4, show_default=True),
            click.option(
                "--whole-nodes", is_flag=True, help="imagine Slurm: jobs start by themselves and hold whole nodes"
            ),
            click.option(
                "--interval",
                type=click.FloatRange(1),
                default=60.0,
                show_default=True,
                help="seconds between decisions",
            ),
            click.option("--at-once", is_flag=True, help="decide at once when something happens, not at the interval"),
            click.option(
                "--start-s",
                type=click.FloatRange(0),
                help="a start or move costs so long  [default: the site's; 30]",
            ),
            click.option(
                "--profiles",
                type=click.Path(path_type=Path, file_okay=False),
                envvar="ONES_PROFILES",
                help="folder of measured applications  [default: $ONES_PROFILES]",
            ),
            click.option("--seed", type=click.IntRange(0), default=1, show_default=True),
            click.option("--node-fails-after", type=click.FloatRange(0), default=0.0, help="mean hours; 0: never"),
            click.option(
                "--contention",
                type=click.FloatRange(0, 0.9),
                default=0.0,
                help="share of its speed that a job on several nodes loses to another one there",
            ),
            click.option("--keep-going", is_flag=True, help="leave bad rows and too large jobs out, and count them"),
        )
    ):
        function = option(function)
    return function


def setting_of(
    site: str | None,
    *,
    nodes: str | float,
    gpus_per_node: int,
    whole_nodes: bool,
    interval: float,
    at_once: bool,
    start_s: float | None,
    profiles: Path | None,
    seed: float,
    node_fails_after: float,
    contention: float,
) -> Setting:
    """What the options say, and the costs of the site file where one is given."""
    import msgspec

    from ones_slurm.model.settings import load_site
    from ones_slurm.study.setting import Setting

    setting = Setting(
        nodes=_nodes(nodes),
        gpus_per_node=gpus_per_node,
        whole_nodes=whole_nodes,
        interval_s=interval,
        by_clock=not at_once,
        profiles=profiles,
        seed=int(seed),
        mean_up_s=node_fails_after * 3600.0,
        contention=contention,
    )
    if site is not None:
        settings = load_site(site)
        setting = msgspec.structs.replace(setting, costs=settings.costs, moves=settings.moves)
    if start_s is not None:
        setting = msgspec.structs.replace(setting, costs=msgspec.structs.replace(setting.costs, start_s=start_s))
    return setting


def _nodes(said: str | float) -> int | tuple[NodeKind, ...]:
    from ones_slurm.sim.nodes import read_kinds

    count = str(said).removesuffix(".0")  # a sweep gives numbers
    return int(count) if count.isascii() and count.isdigit() and int(count) else read_kinds(count)
