"""Where a job and its companions meet: two small files for each companion in the job's run folder.

`companions/<slurm job id>.json` is the companion's word, `join/<slurm job id>.json` the base's. Both are
level-triggered, written aside and renamed; a companion takes its own away when it ends. Only the owner of both jobs
writes here.
"""

import pathlib

import msgspec

from ones_slurm.elastic.runfolder import RunFolder, read_whole, write_whole


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A companion that has come up. `ranks_per_node` is how many ranks each of its nodes takes.

    `running` is the generation whose ranks run there now, None while none do; `failed` why its last step ended badly.
    """

    job_id: str
    nodes: tuple[str, ...]
    ranks_per_node: int
    running: int | None = None
    failed: str = ""


class JoinWord(msgspec.Struct, frozen=True, kw_only=True):
    """What the base tells a companion: start `command` on these nodes, as ranks `first_rank` … of a world of `world`.

    `generation` is counted on by the base, so a companion follows each word once. `env` is the whole environment of the
    ranks but for Slurm's own variables; with it comes everything that the rank starter and our API read. A word without
    nodes says that nothing more will come: the companion ends once its ranks have.
    """

    generation: int
    nodes: tuple[str, ...]
    ranks_per_node: int
    first_rank: int
    world: int
    address: str
    port: int
    command: tuple[str, ...]
    env: dict[str, str]


def announce(folder: RunFolder, word: Announcement) -> None:
    """The companion's word, which it repeats whenever it changes."""
    write_whole(_companions(folder) / f"{word.job_id}.json", msgspec.json.encode(word))


def withdraw(folder: RunFolder, job_id: str) -> None:
    """The companion ends."""
    for path in (_companions(folder) / f"{job_id}.json", _joins(folder) / f"{job_id}.json"):
        path.unlink(missing_ok=True)


def announced(folder: RunFolder) -> list[Announcement]:
    """Every companion that has announced itself and not ended, oldest first."""
    words = [read_whole(path, Announcement) for path in _companions(folder).glob("*.json")]
    return sorted((word for word in words if word is not None), key=lambda word: (len(word.job_id), word.job_id))


def invite(folder: RunFolder, job_id: str, word: JoinWord) -> None:
    """The base's word to one companion."""
    write_whole(_joins(folder) / f"{job_id}.json", msgspec.json.encode(word))


def invitation(folder: RunFolder, job_id: str) -> JoinWord | None:
    """The base's latest word to this companion."""
    return read_whole(_joins(folder) / f"{job_id}.json", JoinWord)


def _companions(folder: RunFolder) -> pathlib.Path:
    return _made(folder, "companions")


def _joins(folder: RunFolder) -> pathlib.Path:
    return _made(folder, "join")


def _made(folder: RunFolder, name: str) -> pathlib.Path:
    path = folder.path / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path
