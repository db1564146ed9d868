"""Submits a job exactly once, also when Slurm's answer is lost on the way."""

import functools
import re
import secrets
import time
from collections.abc import Callable, Sequence

from ones_slurm.model.errors import Failed, Unreachable
from ones_slurm.slurm.command import Runner, ask, run_here

# Ours: slurmctld may still be working on a request whose answer timed out, so look only after a while.
_LOOK_AFTER_S = 5.0
_TRIES = 3
_PARSABLE = re.compile(r"(\d+)(?:;\S+)?", re.ASCII)


def submit(
    arguments: Sequence[str],
    *,
    comment: str = "",
    runner: Runner = run_here,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Runs `sbatch` with `arguments` (options, script, its arguments) and returns the job id.

    `comment` becomes the job's comment, followed by a word that no other submission has; by it the job is looked for in
    the queue when sbatch could not tell its outcome, and only when it is not there it is sent again. A refusal by the
    site (wrong host, project, partition) is raised at once and not tried again.
    """
    token = f"ones-submit:{secrets.token_hex(6)}"
    run = functools.partial(ask, runner)
    for attempt in range(1, _TRIES + 1):
        try:
            return _job_id(run("sbatch", "--parsable", f"--comment={f'{comment} {token}'.strip()}", *arguments))
        except Unreachable as error:
            sleep(_LOOK_AFTER_S)
            job_id = _look_for(token, run, error)
            if job_id is not None:
                return job_id
            if attempt == _TRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


def _look_for(token: str, run: Callable[..., str], cause: Unreachable) -> str | None:
    try:
        queue = run("squeue", "--me", "--noheader", "--states=all", "--format=%A %k")
    except Unreachable as error:
        raise Unreachable(
            f"{cause.message}; and the queue cannot be read, so it is unknown whether the job was taken",
            hint=f"before you submit again, look for {token} in `squeue --me -o '%i %k'`",
        ) from error
    for line in queue.splitlines():
        if token in line.split():
            return line.split()[0]
    return None


def _job_id(printed: str) -> str:
    for line in reversed(printed.splitlines()):
        match = _PARSABLE.fullmatch(line.strip())
        if match is not None:
            return match[1]
    raise Failed(f"sbatch printed no job id: {printed.strip()[:200]!r}", hint="look at `squeue --me`")
