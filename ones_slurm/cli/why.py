"""`ones why JOBID`: each decision about a job, with its reason and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ones_slurm.cli.table import plain
from ones_slurm.report.shown import show_duration

if TYPE_CHECKING:
    from ones_slurm.daemon.answers import Why
    from ones_slurm.engine.records import StoryLine


@click.command()
@click.argument("job_id", metavar="JOBID")
@click.option("-n", "--last", type=click.IntRange(1), help="only so many of the last ones")
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_obj
def command(site: str | None, job_id: str, last: int | None, as_json: bool) -> None:
    """Print each decision about a job, oldest first, with its reason and its numbers.

    \b
    decision   what was decided, and the figures behind it
    shrink …   an order to the job: to become another size or batch; the line is written when it is sent
    done …     what became of it (done, refused, failed), and how long it took
    event      what was heard of the job

    What it cost in GPU-hours: `ones eff JOBID`. Asks onesd; where that does not answer, reads its journal, if you may.
    """
    import msgspec

    from ones_slurm.model.errors import NotFound

    why = _story(site, job_id)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(why), indent=1))
        return
    if not why.story:
        raise NotFound(f"nothing was ever decided about job {job_id}", hint="has it a wish, and did onesd see it?")
    sent_s: dict[int, float] = {}
    texts = []
    for line in why.story:
        if line.generation is None:
            took = ""
        elif line.generation in sent_s:
            took = f", after {show_duration(line.at_s - sent_s[line.generation])}"
        else:
            sent_s[line.generation], took = line.at_s, ""
        texts.append(_text(line, took))
    for text in texts[-(last or len(texts)) :]:
        click.echo(plain(text))


def _story(site: str | None, job_id: str) -> Why:
    import os

    from ones_slurm.cli.show import job_path
    from ones_slurm.daemon.answers import Why
    from ones_slurm.engine.journal import Journal
    from ones_slurm.model.errors import Unreachable
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    path, daemon = job_path(job_id), load_site(site).daemon
    try:
        return Client(daemon).get(f"{path}/why", Why)
    except Unreachable:
        if not os.access(daemon.journal, os.R_OK):
            raise
    with Journal.read(daemon.journal) as journal:
        return Why(job_id=job_id, story=tuple(journal.story(job_id)))


def _text(line: StoryLine, took: str) -> str:
    import datetime

    at = datetime.datetime.fromtimestamp(line.at_s).astimezone().isoformat(" ", "seconds")
    what = [f"generation {line.generation}"] if line.generation is not None else []
    what += [f"{value} {word}" for word, value in (("nodes", line.nodes), ("batch", line.batch)) if value]
    numbers = ", ".join(f"{name}={value:g}" for name, value in line.numbers.items())
    head = f"{at}  tick {line.tick}  {line.what}" + (f" ({', '.join(what)})" if what else "") + took
    return head + (f": {line.reason}" if line.reason else "") + (f" [{numbers}]" if numbers else "")
