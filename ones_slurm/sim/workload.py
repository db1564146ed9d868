"""From the rows of a trace to jobs with a truth."""

import functools
import pathlib
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.sim.application import LIMITS, Application
from ones_slurm.sim.cluster import where
from ones_slurm.sim.early import EarlyStopped
from ones_slurm.sim.job import Submission
from ones_slurm.sim.recipes import RECIPES, tuned_batch
from ones_slurm.sim.rigid import TracedRun
from ones_slurm.sim.rows import BadRow
from ones_slurm.sim.trace import Row
from ones_slurm.sim.training import Training

# Trained at one size in all published runs of this workload family: it is over too soon to be moved.
HELD = {"ncf": (1, 32768)}


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """How rows become jobs.

    `profiles` is the folder of measured applications. `elastic` lets trainings have any size instead of the one asked
    for; `largest` bounds it. `requeueable` says whether jobs of a trace may be stopped and go on later.
    """

    profiles: pathlib.Path | None = None
    elastic: bool = False
    largest: int = 64
    requeueable: bool = True


def submissions(rows: Sequence[Row], choices: Choices) -> list[Submission]:
    """One job for each row, in order. Raises `UsageError` for an application that nothing is known of."""
    known: dict[str, Application] = {}
    return [_submission(row, choices, known) for row in rows]


def that_fit(
    rows: Iterable[Row],
    room: Callable[[str], int],
    path: pathlib.Path,
    bad: Callable[[BadRow], None] | None = None,
) -> list[Row]:
    """The rows of jobs that can ever run in their partition, of `room` GPUs; others go to `bad`, or are raised."""
    fitting = []
    for row in rows:
        least = row.low_gpus or row.gpus
        gpus = room(row.partition)
        if least <= gpus:
            fitting.append(row)
            continue
        error = BadRow(path, row.line, "GPUs", f"job {row.job_id} needs {least}, and {where(row.partition)} has {gpus}")
        if bad is None:
            raise error
        bad(error)
    return fitting


def _submission(row: Row, choices: Choices, known: dict[str, Application]) -> Submission:
    if row.application in LIMITS:
        return _measured(row, choices, _application(row.application, choices, known))
    if row.application in RECIPES:
        return _early(row, choices)
    if row.application:
        raise UsageError(
            f"line {row.line}: nothing is known of application {row.application!r}",
            hint=f"there are {', '.join([*LIMITS, *RECIPES])}; or give a duration_s and no application",
        )
    sizes = _sizes(row, elastic=bool(row.high_gpus), largest=row.high_gpus)
    return _job(
        row,
        kind="traced",
        begin=functools.partial(TracedRun, row.duration_s, row.gpus, talks=sizes.low < sizes.high),
        wish=Wish(gpus=sizes),
        time_limit_s=row.time_limit_s or row.duration_s,
        requeueable=choices.requeueable,
        includes_start=True,
    )


def _measured(row: Row, choices: Choices, application: Application) -> Submission:
    """A training of the Pollux workloads; a tuned batch binds it only while its size is bound as well."""
    base, most = application.base_batch, application.max_batch
    gpus, batch = HELD.get(row.application, (row.gpus, row.batch))
    elastic = choices.elastic and row.application not in HELD
    tuned = 0 if elastic else batch
    truth = Training(application, tuned)
    return _job(
        row,
        kind=row.application,
        gpus=gpus,
        batch=tuned,
        begin=functools.partial(Training, application, tuned),
        wish=Wish(
            gpus=_sizes(row, elastic=elastic, largest=choices.largest),
            batch=Bounds(batch, batch) if row.application in HELD else Bounds(base, most),
        ),
        time_limit_s=row.time_limit_s or 30.0 + truth.remaining_s(gpus),
    )


def _early(row: Row, choices: Choices) -> Submission:
    recipe = RECIPES[row.application]
    epoch_samples = recipe.epoch_samples[int(row.submit_s) % len(recipe.epoch_samples)]
    batch = row.batch or tuned_batch(recipe, row.gpus)
    return _job(
        row,
        kind=recipe.name,
        batch=0 if choices.elastic else batch,
        begin=functools.partial(EarlyStopped, recipe, epoch_samples),
        wish=Wish(
            gpus=_sizes(row, elastic=choices.elastic, largest=choices.largest),
            batch=Bounds(min(recipe.base_batch, batch), recipe.max_batch),
        ),
        time_limit_s=row.time_limit_s or 86400.0,
    )


def _sizes(row: Row, *, elastic: bool, largest: int) -> Bounds:
    if not elastic:
        return Bounds(row.gpus, row.gpus)
    return Bounds(row.low_gpus or 1, row.high_gpus or largest)


def _job(row: Row, **more: object) -> Submission:
    fields: dict[str, object] = {"gpus": row.gpus, "user": row.user, "partition": row.partition} | more
    return Submission(job_id=row.job_id, submit_s=row.submit_s, **fields)  # type: ignore[arg-type]


def _application(name: str, choices: Choices, known: dict[str, Application]) -> Application:
    if choices.profiles is None:
        raise UsageError(
            f"application {name} needs its measured profiles",
            hint="give the folder that holds one folder for each application: --profiles FOLDER",
        )
    if name not in known:
        known[name] = Application(name, choices.profiles)
    return known[name]
