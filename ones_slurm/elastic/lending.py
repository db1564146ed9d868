"""Where a job and its companions meet: two small files for each companion in the job's run folder.

`companions/<slurm job id>.json` is the companion's word, `join/<slurm job id>.json` the base's. Both are
level-triggered, written aside and renamed; a companion takes its own away when it ends. Only the owner of both jobs
writes here.
"""

import contextlib
import pathlib
import subprocess
import sys

import msgspec

from ones_slurm.elastic.runfolder import RunFolder, read_whole, write_whole

COMPANIONS, JOINS = "companions", "join"
# Ours: a third of the time that Slurm gives to a job that it ends (KillWait, 30 s by default).
_SCANCEL_WITHIN_S = 10.0


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A companion that has come up. `ranks_per_node` is how many ranks each of its nodes takes.

    `running` is the generation whose ranks run there now, None while none do. `died` says how tasks of it ended that
    should not have, by their number in the companion's step.
    """

    job_id: str
    nodes: tuple[str, ...]
    ranks_per_node: int
    running: int | None = None
    died: dict[int, str] = {}


class JoinWord(msgspec.Struct, frozen=True, kw_only=True):
    """What the base tells a companion: start `command` on these nodes with these ranks, for this generation.

    A companion follows each generation once, and waits for a later one when its ranks have left (exit code 75). `env`
    is the whole environment of the ranks but for Slurm's own variables; with it comes everything that the rank starter
    and our API read; `cwd` is where they are started. A word without nodes says that nothing more will come, and the
    companion ends.
    """

    generation: int
    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 1
    command: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str] = {}


def announce(folder: RunFolder, word: Announcement) -> None:
    """The companion's word, which it repeats whenever it changes."""
    write_whole(_made(folder, COMPANIONS) / f"{word.job_id}.json", msgspec.json.encode(word))


def withdraw(folder: RunFolder, job_id: str) -> None:
    """The companion ends."""
    for path in (folder.path / COMPANIONS / f"{job_id}.json", folder.path / JOINS / f"{job_id}.json"):
        path.unlink(missing_ok=True)


def announced(folder: RunFolder) -> list[Announcement]:
    """Every companion that has announced itself and not ended, oldest first."""
    words = [read_whole(path, Announcement) for path in (folder.path / COMPANIONS).glob("*.json")]
    return sorted((word for word in words if word is not None), key=lambda word: (len(word.job_id), word.job_id))


def invite(folder: RunFolder, job_id: str, word: JoinWord) -> None:
    """The base's word to one companion."""
    write_whole(_made(folder, JOINS) / f"{job_id}.json", msgspec.json.encode(word))


def invitation(folder: RunFolder, job_id: str) -> JoinWord | None:
    """The base's latest word to this companion."""
    return read_whole(folder.path / JOINS / f"{job_id}.json", JoinWord)


def forget(folder: RunFolder) -> None:
    """A new run of the base begins: what companions of an earlier one have left here is void."""
    for name in (COMPANIONS, JOINS):
        for path in (folder.path / name).glob("*.json"):
            path.unlink(missing_ok=True)


def dismiss(folder: RunFolder) -> None:
    """The base ends, and all its companions with it. Quick, for Slurm may be ending the base."""
    lenders = [word.job_id for word in announced(folder)]
    for job_id in lenders:
        with contextlib.suppress(OSError):
            invite(folder, job_id, JoinWord(generation=0))
    if lenders:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["scancel", *lenders], capture_output=True, timeout=_SCANCEL_WITHIN_S, check=False)


def _made(folder: RunFolder, name: str) -> pathlib.Path:
    path = folder.path / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def join_command(program: str, job_id: str, folder: RunFolder, site: pathlib.Path | None) -> tuple[str, ...]:
    """How a companion of this job enters: by this very Python and `ones-run`, into this very run folder."""
    given = () if site is None else ("--site", str(site.absolute()))
    starter = str(pathlib.Path(program).absolute())
    return (sys.executable, starter, *given, "--dir", str(folder.path), "--join", job_id)
