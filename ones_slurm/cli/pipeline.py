"""`ones pipeline`: find the schedule of a model that spans several GPUs, and look at it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ones_slurm.pipeline import Answer, Placement, Progress, Schedule

_placement = click.argument("placement", metavar="FILE|SHAPE")
_times = click.option(
    "--times",
    default="1,3,1",
    show_default=True,
    metavar="F,B,E",
    help="of a SHAPE: microseconds of a forward, a backward, a block on all devices",
)
_inference = click.option("--inference", is_flag=True, help="of a SHAPE: forwards only")
_memory = click.option(
    "--memory", metavar="M[,M...]", help="what each device has left for activations, in the blocks' unit"
)
_count = click.option(
    "-n", "--micro-batches", type=click.IntRange(1), default=16, show_default=True, help="per training step"
)


@click.group(name="pipeline")
def command() -> None:
    """Pipeline schedules: which block of which micro-batch runs where and when.

    FILE is a placement in TOML or JSON (docs/pipeline.md), or a plan that `search -o` left. SHAPE is a ready one: V4
    (plain), V4x2 (interleaved), X4 (two directions), M4 (shared embedding), K4 (two branches), NN4 (encoder-decoder),
    ZB4 (split backward), with any number of devices.
    """
    from importlib.util import find_spec

    from ones_slurm.model.errors import UsageError

    if find_spec("ortools") is None:
        raise UsageError("OR-Tools is not installed", hint='pip install "ones-slurm[pipeline]"')


@command.command()
@_placement
@_count
@_memory
@_times
@_inference
@click.option(
    "--budget", "budget_s", type=click.FloatRange(0, min_open=True), default=30, show_default=True, help="seconds"
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="where the plan goes (JSON)")
@click.option("--json", "as_json", is_flag=True, help="the verdict as JSON")
def search(
    *,
    placement: str,
    micro_batches: int,
    memory: str | None,
    times: str,
    inference: bool,
    budget_s: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Search the best schedule. Ctrl-C ends the search with the best so far."""
    from ones_slurm.pipeline import Plan, search, write_plan

    given = _read(placement, memory, times, inference)
    with _interruptible() as stop, _progress() as told:
        answer = search(given, micro_batches, budget_s, stop, told)
    if output is not None:
        plan = Plan(
            schedule=answer.schedule,
            makespan_us=answer.verdict.makespan_us,
            makespan_bound_us=answer.makespan_bound_us,
            period_us=answer.period_us,
            period_bound_us=answer.period_bound_us,
        )
        write_plan(plan, output)
    _say_json(answer) if as_json else _say(answer)


@command.command()
@_placement
@_count
@_memory
@_times
@_inference
@click.option("--preset", help="show this preset instead of a searched schedule")
@click.option("--svg", "svg_path", type=click.Path(path_type=Path), help="write the picture to this file")
@click.option("--width", type=click.IntRange(20), help="columns of the picture  [default: the terminal's]")
def show(
    *,
    placement: str,
    micro_batches: int,
    memory: str | None,
    times: str,
    inference: bool,
    preset: str | None,
    svg_path: Path | None,
    width: int | None,
) -> None:
    """Draw a schedule: a plan, or what a short search finds for a placement."""
    from ones_slurm.pipeline import is_plan, read_plan, replay, search, svg, verify

    path = Path(placement)
    if path.exists() and is_plan(path):
        schedule = read_plan(path).schedule
    elif preset is not None:
        schedule = _preset(_read(placement, memory, times, inference), micro_batches, preset)
    else:
        with _interruptible() as stop, _progress() as told:
            schedule = search(_read(placement, memory, times, inference), micro_batches, 5, stop, told).schedule
    starts = replay(schedule.placement, schedule.orders)
    verdict = verify(schedule.placement, schedule.micro_batches, starts)
    if svg_path is not None:
        svg_path.write_text(svg(schedule.placement, starts), encoding="utf-8")
    _draw(schedule, starts, width)
    click.echo(
        f"{schedule.placement.name}, {schedule.micro_batches} micro-batches, {schedule.source}: makespan"
        f" {verdict.makespan_us:g} us, bubble {verdict.bubble:.1%}, peak memory {_numbers(verdict.peak_memory)}"
    )
    for fault in verdict.faults:
        click.echo(f"wrong: {fault}", err=True)
    if verdict.faults:
        sys.exit(1)


@command.command()
@click.argument("target", metavar="FILE.py:FUNCTION")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="where the placement goes")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="timed runs of each block")
@click.option("--device", default="cpu", show_default=True, help="torch device, such as cuda:0")
@click.option(
    "--link-gib-per-s", type=click.FloatRange(0, min_open=True), help="bandwidth between devices, for transfers"
)
def profile(target: str, output: Path, repeats: int, device: str, link_gib_per_s: float | None) -> None:
    """Measure the blocks of a model on this machine: times, activation memory, transfers.

    FUNCTION takes a torch device and returns (placement, modules by forward block's name, one micro-batch); the times
    in its placement may be anything. `search` takes the file that is written.
    """
    from ones_slurm.pipeline import write_placement
    from ones_slurm.pipeline.profile import profile_target

    measured = profile_target(target, device, repeats, link_gib_per_s)
    write_placement(measured, output)
    for block in measured.blocks:
        click.echo(f"{block.name}  {block.time_us:.0f} us  {block.memory:+.0f} bytes")


def _read(given: str, memory: str | None, times: str, inference: bool) -> Placement:
    from ones_slurm.model.errors import UsageError
    from ones_slurm.pipeline import Times, by_name, read_blocks

    path = Path(given)
    if path.suffix in (".toml", ".json") or path.exists():
        placement = read_blocks(path)
    else:
        values = _floats(times, "--times")
        if len(values) != 3:
            raise UsageError(f"--times {times}", hint="three numbers: forward,backward,all-device block")
        placement = by_name(given, Times(*values), inference=inference)
    if memory is not None:
        limits = _floats(memory, "--memory")
        placement = placement.with_memory(limits[0] if len(limits) == 1 else limits)
    return placement


def _floats(text: str, option: str) -> list[float]:
    from ones_slurm.model.errors import UsageError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text} is not a list of numbers", hint="such as 4 or 4,4,3,3") from None


def _preset(placement: Placement, micro_batches: int, name: str) -> Schedule:
    from ones_slurm.model.errors import NotFound
    from ones_slurm.pipeline import presets

    known = {schedule.source: schedule for schedule in presets(placement, micro_batches)}
    if name not in known:
        raise NotFound(f"no preset {name!r} for this placement", hint=f"there are {', '.join(known)}")
    return known[name]


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C asks for the answer so far; a second one ends the command."""
    stop = threading.Event()

    def ask(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """One line on a terminal that goes away; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console

    with Console(stderr=True).status("replaying presets") as line:

        def told(progress: Progress) -> None:
            period = (
                "" if progress.period_us is None else f", period {progress.period_us:g} >= {progress.period_bound_us:g}"
            )
            makespan = f"makespan {progress.makespan_us:g} >= {progress.makespan_bound_us:g} us{period}"
            line.update(f"{progress.doing}: {makespan} (Ctrl-C: take it)")

        yield told


def _say(answer: Answer) -> None:
    verdict = answer.verdict
    if answer.proven:
        certainty = "optimal"
    else:
        certainty = f"a better one saves at most {answer.gap:.1%} (bound {answer.makespan_bound_us:g} us)"
    click.echo(f"schedule     {answer.schedule.source}{' (stopped early)' if answer.stopped else ''}")
    click.echo(
        f"makespan     {verdict.makespan_us:g} us for {answer.schedule.micro_batches} micro-batches, {certainty}"
    )
    if answer.period_us is not None:
        kind = "" if answer.copies == 1 else f" with {answer.copies} in a repetend"
        sure = "proven" if answer.period_proven else f"bound {answer.period_bound_us:g} us"
        click.echo(f"period       {answer.period_us:g} us per micro-batch{kind}, {sure}")
    click.echo(f"bubble       {verdict.bubble:.1%}")
    click.echo(f"peak memory  {_numbers(verdict.peak_memory)}")
    for name, makespan_us in sorted(answer.presets.items(), key=lambda item: (item[1] is None, item[1])):
        click.echo(f"  {name:<12} {'does not fit in memory' if makespan_us is None else f'{makespan_us:g} us'}")


def _say_json(answer: Answer) -> None:
    import msgspec

    fields = msgspec.to_builtins(answer)
    fields["schedule"] = answer.schedule.source
    fields |= {"version": 1, "proven": answer.proven, "gap": answer.gap}
    click.echo(msgspec.json.encode(fields))


def _draw(schedule: Schedule, starts: dict[tuple[int, int], float], width: int | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from ones_slurm.pipeline import colour, plain, text_rows

    console = Console()
    columns = (width or console.width) - len(str(schedule.placement.devices)) - 4
    if not console.is_terminal:
        click.echo(plain(schedule.placement, starts, columns))
        return
    for d, row in enumerate(text_rows(schedule.placement, starts, columns)):
        line = Text(f"{d} |")
        for text, op in row:
            style = "dim" if op is None else "black on rgb({},{},{})".format(*colour(schedule.placement, op))
            line.append(text.replace("-", " "), style=style)
        console.print(line)


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)
