"""`ones eff JOBID…`: a page on each job: what it used, what it wasted, and what would help."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ones_slurm.cli.books import books, journal_path, learn, warn
from ones_slurm.cli.table import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ones_slurm.report.lines import JobLine
    from ones_slurm.report.segments import JobHistory
    from ones_slurm.report.usage import Usage
    from ones_slurm.slurm.client import AccountingRow

# Ours: who wants to know of more at once wants a table.
MOST_PAGES = 20


@click.command()
@click.argument("job_ids", metavar="JOBID…", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.option("--from", "dump", type=click.Path(path_type=Path), help="read this output of `sacct -D`, not Slurm")
@click.option("--ledger", type=click.Path(path_type=Path), help="ask this ledger, not Slurm")
@click.option(
    "--journal", type=click.Path(path_type=Path), help="onesd's journal  [default: in state_dir, or onesd is asked]"
)
@click.pass_obj
def command(
    site: str | None,
    *,
    job_ids: tuple[str, ...],
    as_json: bool,
    dump: Path | None,
    ledger: Path | None,
    journal: Path | None,
) -> None:
    """Tell of each job what it used, where its GPU and CPU time went, and what would have helped.

    \b
    GPU-hours      GPUs times the time that they were held
    trained        goodput: the share of these that trained the job; needs the journal of onesd
    waiting        its waits, times the GPUs that it then got: they were lost to it, not to others
    moving         under orders to become another size, while it held its nodes
    restarting     nodes taken while Slurm cleaned up for a requeue, and from a start until it trained
    lost work      trained, and trained again from an older checkpoint
    bubbles        idle time of its pipeline, by its own account
    large batch    what samples at a larger batch than the script's own were worth less
    CPU            user and system time of its steps, of cores times the time that they were held
    memory         the fullest step: its tasks' peaks together, at most what they had at once; of what was asked for
    fairness       rho: completion over the time on a fair share of the cluster; above 1 it was treated unfairly
    """
    import msgspec

    from ones_slurm.engine.journal import Journal
    from ones_slurm.model.errors import NotFound, UsageError
    from ones_slurm.model.settings import load_site
    from ones_slurm.report.as_json import values_of
    from ones_slurm.report.fairness import fairness
    from ones_slurm.report.lines import job_lines
    from ones_slurm.report.selection import Selection

    settings = load_site(site)
    selection = Selection(job_ids=tuple(word for given in job_ids for word in given.split(",") if word))
    live = dump is None and ledger is None
    path = journal_path(settings.daemon, journal, live=live)
    with (
        Journal.read(path) if path is not None else nullcontext() as opened,
        books(settings, selection, dump=dump, ledger=ledger) as book,
    ):
        learn(book, selection, settings.daemon, opened, may_ask=live)
        found = book.histories(selection)
        if not found:
            raise NotFound(
                f"accounting knows no job {', '.join(job_ids)}", hint="`ones report -S now-7days` lists yours"
            )
        if len(found) > MOST_PAGES and not as_json:
            raise UsageError(
                f"these are {len(found)} jobs",
                hint=f"`ones report --by job -j {','.join(job_ids)}` shows them in a table",
            )
        begin_s = min(job.segments[0].submit_s for job in found)
        end_s = max(job.segments[-1].end_s for job in found)
        rho = fairness(found, book.spans(begin_s, end_s), book.gpus(begin_s, end_s))
        rows = book.rows(selection)
        told = _told_use(found, rows, until_s=book.until_s, dump=dump, live=live)
    lines = job_lines(found, rho)
    if as_json:
        answer = values_of("job", lines)
        for row, line in zip(answer["rows"], lines, strict=True):
            use = told.by_job.get(line.job.job_id)
            row["use"] = None if use is None else _values(use)
            row["advice"] = list(_advice(line, use))
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=1))
    else:
        click.echo("\n\n".join("\n".join(map(plain, _page(line, told))) for line in lines))
    for job in found:
        for warning in job.warnings:
            warn(f"job {job.job_id}: {warning}")


class ToldUse(NamedTuple):
    """CPU and memory by job, and a word where they are not known: `why`, or that the cluster does not measure them."""

    by_job: Mapping[str, Usage]
    measured: bool = True
    why: str = ""


def _told_use(
    jobs: Sequence[JobHistory], rows: Sequence[AccountingRow], *, until_s: float, dump: Path | None, live: bool
) -> ToldUse:
    from ones_slurm.report.segments import histories
    from ones_slurm.report.usage import usage
    from ones_slurm.slurm.cli_client import CommandClient
    from ones_slurm.slurm.usage import saved_used

    measured = True
    if live:
        client = CommandClient()
        used = client.used(_to_ask_for([job.job_id for job in jobs]))
        measured = client.measures_use()
    elif dump is None:
        return ToldUse({}, why="a ledger does not keep them: ask where Slurm is, without --ledger")
    elif (found := saved_used(dump)) is not None:
        used = found
    else:
        return ToldUse({}, why="the file does not tell them: TotalCPU, NTasks, TRESUsageInTot, ReqMem and the steps")
    # Its own rows alone: what the companions of a job had is asked for by their own ids.
    own = histories(rows, now_s=until_s)
    wanted = {job.job_id for job in jobs}
    by_job = {job.job_id: usage(job, rows, used) for job in own if job.job_id in wanted}
    return ToldUse(by_job, measured)


def _to_ask_for(job_ids: Sequence[str]) -> list[str]:
    """Ids as sacct takes them: not a list of waiting tasks, and of more than a few one number for a whole array."""
    few = len(job_ids) <= MOST_PAGES
    numbers = (job_id if few and "[" not in job_id else re.split("[_+]", job_id)[0] for job_id in job_ids)
    return list(dict.fromkeys(numbers))


def _values(use: Usage) -> dict[str, Any]:
    import msgspec

    shares = {"cpu_efficiency": use.cpu_efficiency, "memory_efficiency": use.memory_efficiency}
    return msgspec.structs.asdict(use) | shares


def _page(line: JobLine, told: ToldUse) -> Iterator[str]:
    from ones_slurm.report.shown import show, show_duration, show_ratio, show_time
    from ones_slurm.report.usage import told as lines_on

    job, figures = line.job, line.figures
    first, last = job.segments[0], job.segments[-1]
    ran = [segment for segment in job.segments if segment.start_s is not None]
    yield f"Job {job.job_id}  " + "  ".join(map(show, (first.name, job.user, first.account, first.partition)))
    yield _named("state", f"{last.ended_by} {last.ended_how}".strip())
    yield _named("submitted", show_time(first.submit_s))
    if figures.completion_s is not None:
        yield _named("completed in", show_duration(figures.completion_s))
    yield _named("waited", show_duration(figures.wait_s))
    if not ran:
        yield _named("ran", "never")
    else:
        ran_s = sum(segment.duration_s for segment in ran)
        yield _named("ran", f"{show_duration(ran_s)} in {len(ran)} segments, {figures.moves} moves")
        yield _named("nodes", _between([segment.nnodes for segment in ran]))
        yield _named("GPUs", _between([segment.gpus for segment in ran]))
        batches = [segment.batch for segment in ran if segment.batch]
        if batches:
            yield _named("batch", _between(batches))
        samples = [segment.samples for segment in ran if segment.samples is not None]
        if samples:
            yield _named("samples", f"{sum(samples):,}")
        yield from _gpu_time(line)
        use = told.by_job.get(job.job_id)
        if use is not None:
            yield from (_named(name, value) for name, value in lines_on(use, measured=told.measured))
        else:
            yield _named("CPU, memory", told.why or "not told")
    if line.rho is not None:
        yield _named("fairness", f"rho {show_ratio(line.rho)}")
    yield ""
    yield from _advice(line, told.by_job.get(job.job_id))


def _gpu_time(line: JobLine) -> Iterator[str]:
    from ones_slurm.report.losses import CAUSES
    from ones_slurm.report.shown import show_hours, show_share

    lost = line.losses
    yield _named("GPU-hours", show_hours(lost.held / 3600))
    if lost.goodput is not None:
        yield _named("  trained", f"{show_hours(lost.useful / 3600)}  {show_share(lost.goodput)}")
    for cause in CAUSES:
        gpu_s = getattr(lost, cause)
        if gpu_s > 0:
            of_it = show_share(gpu_s / lost.held) if lost.held and cause != "waiting" else "beside them"
            yield _named(f"  {cause.replace('_', ' ')}", f"{show_hours(gpu_s / 3600)}  {of_it}")


def _advice(line: JobLine, use: Usage | None) -> tuple[str, ...]:
    from ones_slurm.report.advice import advice

    return advice(line.job, line.figures, line.losses, use)


def _between(values: list[Any]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _named(name: str, value: str) -> str:
    return f"{name:<14}{value}"
