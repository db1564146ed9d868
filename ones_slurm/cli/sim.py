"""`ones sim`: what would have been under another policy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ones_slurm.cli.bar import bar
from ones_slurm.cli.imagined import assume_option, cluster_options, setting_of
from ones_slurm.cli.sim_tune import command as tune

if TYPE_CHECKING:
    from ones_slurm.sim.trace import Row
    from ones_slurm.study.setting import Result, Setting
    from ones_slurm.study.whatif import Month

VERSION = 1


_trace = click.argument("trace", type=click.Path(path_type=Path))
_policies = click.option("-P", "--policy", "policies", multiple=True, help="who decides (may be repeated)")
_json = click.option("--json", "as_json", is_flag=True, help="all figures, as JSON with a version")
_html = click.option("--html", "html", type=click.Path(path_type=Path), help="also write a page with pictures")


@click.group(name="sim")
def command() -> None:
    """Simulate policies on the same work. Policies: those of `onesd`, and consolidated, easy, elastic-dp, first-fit,
    optimus, pollux, slurm, srtf, strict-fifo, tiresias.

    What decides is the very code that decides live; the guard is on. The same seed gives the same bytes.
    """


@command.command(name="run")
@_trace
@click.option("-P", "--policy", default="ones", show_default=True, help="who decides")
@cluster_options
@click.option("--journal", type=click.Path(path_type=Path), help="write what was decided, as onesd does")
@_json
@_html
@click.pass_obj
def run_(
    site: str | None,
    /,
    trace: Path,
    *,
    policy: str,
    journal: Path | None,
    as_json: bool,
    html: Path | None,
    keep_going: bool,
    **cluster: Any,
) -> None:
    """Run TRACE under one policy; --json tells of every job."""
    from ones_slurm.engine.journal import Journal

    setting = setting_of(site, **cluster)
    rows = _rows(trace, setting, keep_going=keep_going)
    with Journal.open(journal) if journal is not None else nullcontext() as opened:
        result = _simulated(rows, policy, setting, journal=opened)
    _show([result], title=f"{trace.name} under {policy}", as_json=as_json, html=html, each_job=True)


@command.command()
@_trace
@_policies
@cluster_options
@_json
@_html
@click.pass_obj
def compare(
    site: str | None,
    /,
    trace: Path,
    *,
    policies: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    keep_going: bool,
    **cluster: Any,
) -> None:
    """Run TRACE under several policies, side by side."""
    setting = setting_of(site, **cluster)
    rows = _rows(trace, setting, keep_going=keep_going)
    chosen = policies or (("slurm", "fifo", "ones") if setting.whole_nodes else ("first-fit", "tiresias", "ones"))
    results = [_simulated(rows, policy, setting) for policy in chosen]
    _show(results, title=f"{trace.name}: {', '.join(chosen)}", as_json=as_json, html=html)


@command.command()
@_trace
@click.option("-P", "--policy", default="ones", show_default=True, help="who decides")
@click.option("--vary", multiple=True, required=True, metavar="KEY=A,B,…", help="nodes, interval, start-s or seed")
@cluster_options
@_json
@click.pass_obj
def sweep(
    site: str | None,
    /,
    trace: Path,
    *,
    policy: str,
    vary: tuple[str, ...],
    as_json: bool,
    keep_going: bool,
    **cluster: Any,
) -> None:
    """Run TRACE under one policy for every combination of the values that --vary gives."""
    import msgspec

    from ones_slurm.study.table import render

    axes = [_axis(part) for part in vary]
    runs = []
    for values in itertools.product(*(values for _, values in axes)):
        chosen = dict(zip((key for key, _ in axes), values, strict=True))
        setting = setting_of(site, **(cluster | chosen))
        result = _simulated(_rows(trace, setting, keep_going=keep_going), policy, setting)
        label = " ".join(f"{key}={value:g}" for key, value in chosen.items())
        runs.append((chosen, msgspec.structs.replace(result.figures, policy=f"{policy} {label}")))
    if as_json:
        _echo_json({"version": VERSION, "runs": [{"set": chosen, "figures": run} for chosen, run in runs]})
    else:
        click.echo(render([run for _, run in runs]))


@command.command()
@click.argument("journal", type=click.Path(path_type=Path))
def replay(journal: Path) -> None:
    """Decide again what a JOURNAL recorded, live or simulated; the exit code is 1 if a plan comes out differently."""
    from ones_slurm.engine.journal import Journal
    from ones_slurm.engine.replay import replay
    from ones_slurm.model.errors import Failed
    from ones_slurm.policy.registry import policy_named

    with Journal.read(journal) as opened:
        ticks, difference = replay(opened, policy_named)
    if difference is not None:
        raise Failed(f"tick {difference.tick} comes out differently, after {ticks - 1} that are the same")
    click.echo(f"{ticks} plans, all of them the same")


@command.command()
@click.option(
    "--from", "dump", type=click.Path(path_type=Path), required=True, help="output of `sacct -D -P -X -a` or --json"
)
@_policies
@assume_option
@click.option("--site", "its_site", type=click.Path(), help="the site file of the dump  [default: that of ones --site]")
@click.option("--interval", type=click.FloatRange(1), help="seconds between decisions  [default: the site's]")
@_json
@_html
@click.pass_obj
def whatif(
    site: str | None,
    *,
    dump: Path,
    policies: tuple[str, ...],
    assume: float,
    its_site: str | None,
    interval: float | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """What would my last month have looked like? Imagines the nodes and jobs of a site's own accounting."""
    from ones_slurm.model.settings import load_site
    from ones_slurm.report.dump import read_dump
    from ones_slurm.study.setting import setting_of_site, simulate_jobs
    from ones_slurm.study.whatif import read_month

    settings = load_site(its_site or site)
    read = read_dump(dump)
    month = read_month(read.rows, settings, now_s=read.last_s, assume=assume)
    setting = setting_of_site(settings, interval_s=interval)
    chosen = policies or ("slurm", settings.policy.full_name)
    results = []
    for policy in dict.fromkeys(chosen):
        with bar(policy, len(month.work)) as told:
            results.append(simulate_jobs(month.work, policy, setting, month.nodes, told=told))
    notes = _notes(month, unreadable=read.unreadable)
    _show(results, title=f"What if: {dump.name}", as_json=as_json, html=html, notes=notes)


command.add_command(tune)


def _notes(month: Month, *, unreadable: int) -> list[str]:
    from ones_slurm.study.table import duration

    gpus = sum(node.gpus for node in month.nodes)
    notes = [
        f"{len(month.work)} jobs on {len(month.nodes)} nodes with {gpus} GPUs; "
        f"really they took {duration(month.mean_s)} on average and waited {duration(month.waiting_s)}.",
    ]
    notes += [
        f"Elastic: {len(ids)} jobs, because {reason} ({', '.join(ids[:8])}{', …' if len(ids) > 8 else ''})."
        for reason, ids in month.elastic.items()
    ] or ["Elastic: no job."]
    notes += [f"Kept at their size: {count} jobs, because {reason}." for reason, count in month.rigid.items()]
    notes += [f"Left out: {count} jobs, because {reason}." for reason, count in month.left_out.items()]
    if unreadable:
        notes.append(f"{unreadable} lines are no rows of sacct.")
    return notes + [f"Assumed: {assumption}." for assumption in month.assumed]


def _rows(trace: Path, setting: Setting, *, keep_going: bool) -> list[Row]:
    from ones_slurm.cli.trace import load
    from ones_slurm.sim.rows import BadRow
    from ones_slurm.sim.workload import that_fit

    large: list[BadRow] = []
    found = setting.in_partitions(load(trace, keep_going=keep_going))
    rows = that_fit(found, setting.gpus_for, trace, large.append if keep_going else None)
    if large:
        click.echo(f"{trace}: {len(large)} jobs are larger than the cluster and left out", err=True)
    return rows


def _simulated(rows: Sequence[Row], policy: str, setting: Setting, **more: Any) -> Result:
    from ones_slurm.study.setting import simulate

    with bar(policy, len(rows)) as told:
        return simulate(rows, policy, setting, told=told, **more)


def _axis(part: str) -> tuple[str, list[float]]:
    from ones_slurm.model.errors import UsageError

    key, sign, values = part.partition("=")
    name = key.strip().replace("-", "_")
    if name not in ("nodes", "interval", "start_s", "seed") or not sign:
        raise UsageError(
            f"--vary {part!r} is not understood", hint="as --vary start-s=1,30 or nodes=, interval=, seed="
        )
    try:
        return name, [float(value) for value in values.split(",")]
    except ValueError as error:
        raise UsageError(f"--vary {part!r}: these are not numbers", hint="as --vary start-s=1,30") from error


def _show(
    results: Sequence[Result],
    *,
    title: str,
    as_json: bool,
    html: Path | None,
    notes: Sequence[str] = (),
    each_job: bool = False,
) -> None:
    from ones_slurm.study.table import render

    if html is not None:
        from ones_slurm.study.page import page

        html.write_text(page(title, results, notes), encoding="utf-8")
    if as_json:
        answer: dict[str, Any] = {"version": VERSION, "notes": list(notes), "runs": [run.figures for run in results]}
        _echo_json(answer | ({"jobs": list(results[0].jobs)} if each_job else {}))
        return
    click.echo(render([run.figures for run in results]))
    for note in notes:
        click.echo(note)


def _echo_json(answer: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=1))
