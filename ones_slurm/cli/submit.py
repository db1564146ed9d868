"""`ones submit`: sbatch, with the wish written into the comment and checked before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from ones_slurm.model.settings import Site
    from ones_slurm.model.wish import Wish


class Divided(click.Command):
    """Takes our own options from wherever they stand before the script; the rest goes to sbatch untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from ones_slurm.cli.sbatch_words import divide

        spelled = [(param, name) for param in self.get_params(ctx) for name in param.opts if name.startswith("-")]
        flags = {name for param, name in spelled if getattr(param, "is_flag", False)}
        ours, theirs = divide(args, {name for _, name in spelled} - flags, flags)
        return super().parse_args(ctx, [*ours, "--", *theirs])


@click.command(cls=Divided, options_metavar="[OPTIONS]")
@click.option("--nodes", metavar="LOW-HIGH", help="the fewest and the most nodes to train on")
@click.option("--gpus", metavar="LOW-HIGH", help="the same in GPUs, instead of --nodes")
@click.option("--pipeline", metavar="FILE", help="the blocks of a pipeline, as `ones pipeline` writes and reads them")
@click.option("--replicas", metavar="LOW-HIGH", help="the fewest and the most replicas of the pipeline")
@click.option("--batch", metavar="LOW-HIGH", help="the global batch: its base, for which the script is tuned, and most")
@click.option("--dry-run", is_flag=True, help="print the sbatch line and submit nothing")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SBATCH-OPTIONS] SCRIPT [ARGUMENTS]")
@click.pass_obj
def command(
    site: str | None,
    *,
    nodes: str | None,
    gpus: str | None,
    pipeline: str | None,
    replicas: str | None,
    batch: str | None,
    dry_run: bool,
    words: tuple[str, ...],
) -> None:
    """Submit an elastic job; prints its id.

    All options of sbatch may be given as well and keep their meaning, but for these: for a fixed size use -N and -G.
    Without -N the job is submitted at the fewest nodes of its wish, so that it starts soonest.
    """
    import os

    from ones_slurm.cli.sbatch_words import request, script_of, without
    from ones_slurm.model.errors import UsageError
    from ones_slurm.model.settings import load_site
    from ones_slurm.slurm.submit import submit

    script = script_of(words)
    asked = request(words, _text(script), os.environ)
    if script is None and "--wrap" not in asked:
        raise UsageError("there is no script to submit", hint="ones submit --nodes 1-4 train.sbatch")
    comment = asked.get("--comment", "")
    sizes = {"nodes": nodes, "gpus": gpus, "pipeline": pipeline, "devices": _devices(pipeline), "replicas": replicas}
    wish, comment = _wish(comment, {**sizes, "batch": batch})
    size = _check(wish, asked, load_site(site))
    sized = [] if "--nodes" in asked else [f"--nodes={size}"]
    runner = _print if dry_run else _run
    job_id = submit([*sized, *without(words, "--comment")], comment=comment, runner=runner)
    if not dry_run:
        click.echo(job_id)


def _devices(pipeline: str | None) -> str | None:
    """How many GPUs a replica has, so that onesd knows it before the job has started."""
    from pathlib import Path

    from ones_slurm.model.errors import UsageError

    if pipeline is None:
        return None
    if any(char in " \t\n,;" for char in pipeline):
        raise UsageError(f"a comment cannot hold the file name {pipeline!r}", hint="one without blanks, commas and ;")
    from ones_slurm.pipeline import read_blocks

    return str(read_blocks(Path(pipeline)).devices)


def _wish(comment: str, options: dict[str, str | None]) -> tuple[Wish, str]:
    """The wish, and the comment with it: the user's own words stay as they are."""
    import msgspec

    from ones_slurm.model.errors import UsageError
    from ones_slurm.model.wish import format_wish, parse_wish

    given = [f"{key}={value}" for key, value in options.items() if value is not None]
    in_comment = parse_wish(comment)
    if in_comment is not None:
        if given:
            raise UsageError(
                f"the wish is given twice: as {given[0]} and in the comment {comment!r}", hint="leave one of them out"
            )
        if in_comment.pipeline and not in_comment.devices:
            devices = int(_devices(in_comment.pipeline) or 0)
            in_comment = msgspec.structs.replace(in_comment, devices=devices)
        return in_comment, comment
    wish = parse_wish(f"ones:{','.join(given)}") if given else None
    if wish is None:
        raise UsageError(
            "the job has no wish, so it would never change its size",
            hint="give --nodes 1-4 (and --batch 64-4096), or use sbatch",
        )
    return wish, f"{comment} {format_wish(wish)}".strip()


def _check(wish: Wish, asked: Mapping[str, str], site: Site) -> int:
    """The node count to submit with; raises `UsageError` or `NotFound` for what cannot be."""
    from ones_slurm.cli.sbatch_words import gpus_per_node
    from ones_slurm.model.errors import NotFound, UsageError
    from ones_slurm.slurm.partitions import partitions

    known = {record.name: record for record in partitions()}
    names = asked["--partition"].split(",") if asked.get("--partition") else [n for n, r in known.items() if r.default]
    for name in names:
        if name not in known:
            raise NotFound(f"there is no partition {name!r}", hint=f"partitions here: {', '.join(sorted(known))}")
        if (own := site.partitions.get(name)) is not None and not own.elastic:
            raise UsageError(f"jobs in partition {name} keep their size (site file)", hint="another one, or sbatch")
    per_node = gpus_per_node(asked) or max(
        (site.partitions[n].gpus_per_node for n in names if n in site.partitions), default=0
    )
    fixed = asked.get("--nodes", "").partition("-")[0]
    bounds = wish.node_bounds(int(fixed) if fixed.isdecimal() else 1, per_node)
    most = max((known[name].max_nodes for name in names), default=bounds.high)
    if bounds.high > most:
        raise UsageError(
            f"the wish goes up to {bounds.high} nodes, and a job in {','.join(names)} can have {most}",
            hint=f"for example --nodes {min(bounds.low, most)}-{most}",
        )
    if fixed.isdecimal() and not bounds.low <= int(fixed) <= bounds.high:
        raise UsageError(f"-N {fixed} is outside of the wish, {bounds.low} to {bounds.high} nodes", hint="leave -N out")
    return bounds.low


def _text(script: str | None) -> str:
    """The script, for its directives; one that cannot be read is sbatch's to complain about."""
    from pathlib import Path

    try:
        return Path(script).read_text(encoding="utf-8", errors="replace") if script is not None else ""
    except OSError:
        return ""


def _run(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """sbatch hands its environment to the job, and reads --begin in its time zone: it gets the user's own."""
    from ones_slurm.slurm.command import run_here

    return run_here(argv, env={} if argv[0] == "sbatch" else env, timeout_s=timeout_s)


def _print(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """The dry run: the same line, printed."""
    import shlex
    import subprocess

    click.echo(shlex.join(argv))
    return subprocess.CompletedProcess(argv, 0, stdout="0\n", stderr="")
