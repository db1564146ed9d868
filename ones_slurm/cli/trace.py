"""`ones trace`: traces of jobs, read, made and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ones_slurm.cli.bar import progress

if TYPE_CHECKING:
    from ones_slurm.sim.rows import BadRow
    from ones_slurm.sim.trace import Row

_file = click.argument("file", type=click.Path(path_type=Path))
_keep_going = click.option("--keep-going", is_flag=True, help="leave bad rows out, and count them")
_output = click.option("-o", "--output", type=click.Path(path_type=Path), help="where it goes  [default: the terminal]")


@click.group(name="trace")
def command() -> None:
    """Traces: who submitted what and when.

    Read are our own format, the Pollux workloads, Philly, ElasticFlow, and what `sacct -D -P` or `sacct -D --json`
    wrote; they are told apart by their headings. All commands that take a trace take any of them.
    """


@command.command(name="import")
@_file
@_keep_going
@_output
def import_(file: Path, *, keep_going: bool, output: Path | None) -> None:
    """Write FILE in our own format."""
    _write(load(file, keep_going=keep_going), output)


@command.command()
@_file
@_keep_going
@click.option("--gpus", type=click.IntRange(1), help="also find jobs that need more than so many GPUs")
def check(file: Path, *, keep_going: bool, gpus: int | None) -> None:
    """Say what is in FILE; the exit code is 2 if there is a bad row."""
    from ones_slurm.sim.trace import format_of
    from ones_slurm.sim.workload import that_fit
    from ones_slurm.study.saved import is_saved

    form = "sacct" if is_saved(file) else format_of(file)
    bad: list[BadRow] = []
    rows = load(file, keep_going=keep_going, found=bad)
    if gpus is not None:
        rows = that_fit(rows, lambda _: gpus, file, _collect(bad) if keep_going else None)
    span_h = (rows[-1].submit_s - rows[0].submit_s) / 3600 if rows else 0.0
    kinds = sorted({row.application or "traced" for row in rows})
    click.echo(f"{file}: {form}, {len(rows)} jobs over {span_h:.1f} h, up to {max(row.gpus for row in rows)} GPUs")
    click.echo(f"classes: {', '.join(kinds)}")
    if bad:
        raise bad[0]


@command.command()
@click.option("-n", "--jobs", type=click.IntRange(1), default=160, show_default=True)
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=8.0, show_default=True)
@click.option("--mix", default="traced=1", show_default=True, metavar="CLASS=SHARE,…", help="what the jobs are")
@click.option("--arrivals", type=click.Choice(["poisson", "uniform", "daily"]), default="poisson", show_default=True)
@click.option("--largest", type=click.IntRange(1), default=64, show_default=True, help="most GPUs that a job asks for")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@_output
def synth(*, jobs: int, hours: float, mix: str, arrivals: str, largest: int, seed: int, output: Path | None) -> None:
    """Make a trace from a seed. Classes: traced, the Pollux applications (bert, …), the ONES recipes (bert-cola, …)."""
    from ones_slurm.sim.synth import synthesise

    rows = synthesise(jobs, hours=hours, mix=_shares(mix), arrivals=arrivals, largest=largest, seed=seed)
    _write(rows, output)


def load(file: Path, *, keep_going: bool, found: list[BadRow] | None = None) -> list[Row]:
    """The rows of a trace, with a bar on a terminal when it takes long; bad ones are counted on stderr."""
    from ones_slurm.sim.trace import read_trace
    from ones_slurm.study.saved import is_saved

    if is_saved(file):
        return _accounted(file)
    bad: list[BadRow] = [] if found is None else found
    with _bar(file) as read:
        rows = read_trace(file, bad=_collect(bad) if keep_going else None, read=read)
    if bad:
        click.echo(f"{file}: {len(bad)} bad rows are left out, the first one: {bad[0].message}", err=True)
    return rows


def _accounted(file: Path) -> list[Row]:
    """Jobs with GPUs that are over, by a site's own accounting; what is left out is counted on stderr."""
    from ones_slurm.model.settings import load_site
    from ones_slurm.report.dump import read_dump
    from ones_slurm.study.whatif import read_month, rows_of

    read = read_dump(file)
    month = read_month(read.rows, load_site(), now_s=read.last_s)
    if read.unreadable:
        click.echo(f"{file}: {read.unreadable} lines are no rows of sacct", err=True)
    for reason, count in month.left_out.items():
        click.echo(f"{file}: {count} jobs are left out, because {reason}", err=True)
    return rows_of(month)


def _collect(bad: list[BadRow]) -> Callable[[BadRow], None]:
    return bad.append


@contextmanager
def _bar(file: Path) -> Iterator[Callable[[int], None] | None]:
    with progress() if file.is_file() else nullcontext() as shown:
        if shown is None:
            yield None
            return
        task = shown.add_task(f"reading {file.name}", total=file.stat().st_size)
        yield lambda count: shown.advance(task, count)


def _shares(mix: str) -> dict[str, float]:
    from ones_slurm.model.errors import UsageError

    shares = {}
    for part in mix.split(","):
        name, sign, share = part.strip().partition("=")
        try:
            shares[name] = float(share) if sign else 1.0
        except ValueError as error:
            raise UsageError(f"--mix {part.strip()!r}: {share!r} is no number", hint="as bert=2,cifar10=3") from error
    return shares


def _write(rows: list[Row], output: Path | None) -> None:
    from ones_slurm.sim.trace import write_trace

    text = "".join(write_trace(rows))
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
