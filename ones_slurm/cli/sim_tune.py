"""`ones sim tune`: constants for this site's own work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ones_slurm.cli.bar import bar
from ones_slurm.cli.imagined import assume_option

if TYPE_CHECKING:
    from ones_slurm.model.settings import Site
    from ones_slurm.study.past import Past
    from ones_slurm.study.tuning import Tuned
    from ones_slurm.study.whatif import Month

VERSION = 1


@click.command(name="tune")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="a journal of onesd, a ledger of ones report, or output of `sacct -D -P -X -a`",
)
@click.option("--site", "its_site", type=click.Path(), help="the site file  [default: that of ones --site]")
@assume_option
@click.option("--generations", type=click.IntRange(1), default=5, show_default=True, help="how long to search")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="write the piece there")
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_obj
def command(
    site: str | None,
    *,
    source: Path,
    its_site: str | None,
    assume: float,
    generations: int,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find better constants of the policy for this site's own work.

    They are evolved on the first two thirds of the jobs, and adopted only if they then win on the last third, which the
    search has not seen. What is adopted is a piece of TOML for the end of the site file; else nothing is written.
    """
    import msgspec

    from ones_slurm.model.settings import load_site
    from ones_slurm.study.past import read_past
    from ones_slurm.study.setting import setting_of_site
    from ones_slurm.study.tuning import site_piece, tune
    from ones_slurm.study.whatif import read_month

    settings = load_site(its_site or site)
    past = read_past(source)
    month = read_month(past.rows, settings, now_s=past.last_s, assume=assume)
    with bar("generations", generations) as told:
        tuned = tune(
            month.work,
            month.nodes,
            setting_of_site(settings),
            present=settings.policy.constants,
            generations=generations,
            seed=seed,
            judge=settings.policy.name,
            told=told,
        )
    notes = list(_notes(month, past, settings, tuned))
    piece = "".join(f"# {note}\n" for note in notes) + site_piece(tuned.constants) if tuned.adopted else ""
    if output is not None and piece:
        output.write_text(piece, encoding="utf-8")
    if as_json:
        answer = {"version": VERSION, "notes": notes, "tuned": tuned}
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=1))
    elif piece:
        click.echo(piece, nl=False)
    else:
        click.echo("\n".join(notes))


def _notes(month: Month, past: Past, settings: Site, tuned: Tuned) -> Iterator[str]:
    from ones_slurm.study.table import duration
    from ones_slurm.study.tuning import CLEARLY

    elastic = sum(map(len, month.elastic.values()))
    yield f"{len(month.work)} jobs, {elastic} of them elastic, {tuned.tried} replays on {len(month.nodes)} nodes."
    change = tuned.after_s / tuned.before_s - 1.0
    yield (
        f"On the last {tuned.unseen} jobs, which the search had not seen, policy {settings.policy.name} takes "
        f"{duration(tuned.after_s)} on average with the constants found, {duration(tuned.before_s)} with the present "
        f"ones ({100 * change:+.1f} %)."
    )
    if not tuned.adopted:
        yield f"That is no clear win (at least {100 * CLEARLY:g} %): the present constants stay."
    if past.unreadable:
        yield f"{past.unreadable} lines are no rows of sacct."
