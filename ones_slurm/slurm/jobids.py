"""Job ids: `12`, array tasks `12_3` and `12_[4-9%2]`, parts of heterogeneous jobs `93+1`, steps `12.batch`."""

import re

import msgspec

_ID = re.compile(
    r"(?P<job>\d{1,10})(?:_(?:(?P<task>\d{1,10})|\[(?P<tasks>[\d,:.-]+)(?:%(?P<throttle>\d{1,10}))?\]))?"
    r"(?:\+(?P<offset>\d{1,6}))?(?:\.(?P<step>\w+))?",
    re.ASCII,
)
_SPAN = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)


class JobId(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a job id. `tasks` are ranges of array tasks that still wait together, at most `throttle` at once."""

    job: int
    tasks: tuple[range, ...] = ()
    throttle: int | None = None
    het_offset: int | None = None
    step: str | None = None

    @property
    def task_count(self) -> int:
        """How many array tasks the id stands for."""
        return sum(len(span) for span in self.tasks)

    @property
    def scontrol(self) -> str:
        """What `scontrol` takes: the job, or its array task; of tasks that wait together, the next to start."""
        return f"{self.job}_{self.tasks[0][0]}" if self.tasks else str(self.job)


def read_job_id(text: str | None) -> JobId | None:
    """The parts of an id; None for text that is none."""
    match = _ID.fullmatch((text or "").strip())
    if match is None:
        return None
    tasks = read_tasks(match["task"] or match["tasks"])
    if (match["task"] or match["tasks"]) and not tasks:
        return None
    return JobId(
        job=int(match["job"]),
        tasks=tasks,
        throttle=int(match["throttle"]) if match["throttle"] else None,
        het_offset=int(match["offset"]) if match["offset"] else None,
        step=match["step"],
    )


def read_tasks(text: str | None) -> tuple[range, ...]:
    """The array tasks in `1,4-9,20-40:5%2`; a list that Slurm cut with `...` gives what is left of it."""
    spans: list[range] = []
    for part in (text or "").partition("%")[0].split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is not None:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            if first <= last and step > 0:
                spans.append(range(first, last + 1, step))
    return tuple(spans)
