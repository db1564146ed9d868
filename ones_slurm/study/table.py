"""The columns of a comparison, declared once for the terminal, a pipe and the page."""

import math
from collections.abc import Callable, Sequence

import msgspec

from ones_slurm.study.figures import Figures


class Column(msgspec.Struct, frozen=True):
    """One figure: its heading, what it means, and how it is written."""

    name: str
    what: str
    cell: Callable[[Figures], str]


def duration(seconds: float) -> str:
    """As 4:05:10, or 2-04:05:10 from a day on, as Slurm writes it."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}" if days else f"{hours}:{minutes:02}:{rest:02}"


def _share(value: float) -> str:
    return f"{100 * value:.1f}%"


COLUMNS = (
    Column("policy", "who decided", lambda run: run.policy),
    Column("jobs", "jobs that ended, and how many of them failed", lambda run: f"{run.jobs}/{run.failed}"),
    Column("mean", "average completion time, from submission to the end", lambda run: duration(run.mean_s)),
    Column("median", "half of the jobs took no longer", lambda run: duration(run.median_s)),
    Column("p90", "nine in ten took no longer", lambda run: duration(run.p90_s)),
    Column("p99", "99 in a hundred took no longer", lambda run: duration(run.p99_s)),
    Column("makespan", "from the first submission to the last end", lambda run: duration(run.makespan_s)),
    Column("wait", "average time to the first start", lambda run: duration(run.waiting_s)),
    Column("used", "GPU time that jobs held, of all there was", lambda run: _share(run.utilisation)),
    Column("goodput", "GPU time worth as much as that of one GPU alone", lambda run: _share(run.goodput)),
    Column("moves", "changes of GPUs per job, its start not counted", lambda run: f"{run.moves:.2f}"),
    Column("rho", "finish-time fairness: average of completion over a fair share's", lambda run: f"{run.rho_mean:.2f}"),
    Column("worst", "the least fair of them", lambda run: f"{run.rho_worst:.1f}"),
)


def render(runs: Sequence[Figures]) -> str:
    """Plain text, one line a run."""
    table = [[column.name.upper() for column in COLUMNS], *([column.cell(run) for column in COLUMNS] for run in runs)]
    widths = [max(len(line[place]) for line in table) for place in range(len(COLUMNS))]
    lines = []
    for line in table:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
