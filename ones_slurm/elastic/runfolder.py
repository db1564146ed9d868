"""The run folder: where the wrapper, rank 0 and the next generation leave word for each other.

Only the job's owner writes into it. Every file is written aside and renamed, so a reader sees a whole one or none.
"""

import fcntl
import os
import pathlib
import stat
from typing import Any, TypeVar

import msgspec

from ones_slurm.model.errors import Failed, NotAllowed, UsageError
from ones_slurm.model.wire import Declined, Order, Pipeline, Progress

# The exit code of a rank whose state is saved and who makes room for the next generation. Ours: 75 is EX_TEMPFAIL,
# "try again later", in sysexits.h, and nothing that torch, MPI or a shell uses for itself.
LEFT_CODE = 75

Kind = TypeVar("Kind")


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 says of its generation.

    `left`: the state is saved and the ranks exit; `finished`: the training is over, and saved. `first_step` and
    `first_samples` are where it began, which is behind the end of the last one when that could not save.
    `live`: an order can be entered in memory, and a death survived. Then `ranks` on `nodes` make up the world since
    `formation`, which is counted up with each change, and `why` is the cause of one that was not ordered.
    """

    generation: int
    first_step: int = 0
    first_samples: int = 0
    progress: Progress = Progress()
    batch: int = 0
    left: bool = False
    finished: bool = False
    live: bool = False
    formation: int = 0
    ranks: int = 0
    nodes: tuple[str, ...] = ()
    why: str = ""
    declined: Declined | None = None
    notes: tuple[str, ...] = ()


class Team(msgspec.Struct, frozen=True):
    """Ranks that were started together: `ranks_per_node` on each node. `name` counts the starts of one run."""

    name: str
    nodes: tuple[str, ...]
    ranks_per_node: int

    @property
    def ranks(self) -> int:
        """How many processes it has."""
        return len(self.nodes) * self.ranks_per_node

    @property
    def members(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(f"{self.name}.{task}" for task in range(self.ranks))


class Wanted(Order, frozen=True, kw_only=True):
    """An order as the ranks get it. A live one says who comes, and who goes: `team@node` for each of those seats."""

    coming: tuple[Team, ...] = ()
    going: tuple[str, ...] = ()


class GenerationLine(msgspec.Struct, frozen=True, kw_only=True):
    """One generation as it was: a line of `generations.jsonl`. Times are Unix seconds."""

    generation: int
    restarts: int
    nodes: tuple[str, ...]
    ranks: int
    batch: int
    lr_scale: float
    started_s: float
    ended_s: float
    first_step: int
    last_step: int
    first_samples: int
    last_samples: int
    ended_why: str


class RunFolder:
    """The files of one job between its generations."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path).absolute()
        self._lock: int | None = None

    @property
    def checkpoints(self) -> pathlib.Path:
        """Where the training API keeps its checkpoints."""
        return self.path / "checkpoints"

    @property
    def foreign_checkpoint(self) -> pathlib.Path:
        """The stable path that stands for `{checkpoint}` in the command of a script without our API."""
        return self.path / "checkpoint.pt"

    @property
    def order_path(self) -> pathlib.Path:
        """The order that the ranks have not yet followed; rank 0 looks at it once a window."""
        return self.path / "order.json"

    def prepare(self) -> None:
        """Makes the folder if it is missing and takes it for this process.

        Raises `NotAllowed` for a symbolic link or somebody else's folder (what is written there could be theirs to
        choose), `UsageError` when another `ones-run` holds it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for folder in (self.path, self.checkpoints):
                folder.mkdir(mode=0o700, exist_ok=True)
                _must_be_ours(folder)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Failed(f"cannot use the run folder {self.path}: {error}", hint="name another by --dir") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another ones-run holds the run folder {self.path}", hint="give each job a folder of its own by --dir"
            ) from error
        except OSError:
            pass  # a file system without locks: the folder's name, the job id, has to do

    def visit(self) -> None:
        """For a companion, which works in its base's folder. Raises `NotAllowed`, or `Failed` if it is not there."""
        try:
            _must_be_ours(self.path)
        except OSError as error:
            raise Failed(f"there is no run folder {self.path}: {error}", hint="give the base's own by --dir") from error

    def write_order(self, order: Order) -> None:
        """Tells the ranks what is wanted of them."""
        write_whole(self.order_path, msgspec.json.encode(order))

    def read_order(self) -> Wanted | None:
        """The standing order, or None."""
        return read_whole(self.order_path, Wanted)

    def clear_order(self) -> None:
        """The order was followed, declined or is void."""
        self.order_path.unlink(missing_ok=True)

    def write_word(self, word: Word) -> None:
        """Rank 0's word to the wrapper."""
        write_whole(self.path / "progress.json", msgspec.json.encode(word))

    def read_word(self) -> Word | None:
        """The latest word of rank 0, of whichever generation."""
        return read_whole(self.path / "progress.json", Word)

    def write_pipeline(self, pipeline: Pipeline) -> None:
        """What rank 0 of a pipeline job knows of its schedules."""
        write_whole(self.path / "pipeline.json", msgspec.json.encode(pipeline))

    def read_pipeline(self) -> Pipeline | None:
        """The same, for the wrapper to tell; None for any other job."""
        return read_whole(self.path / "pipeline.json", Pipeline)

    def begin_generation(self) -> Progress:
        """Voids what was said in the last generation and returns how far that one came.

        On a full disk the last word is removed instead: nobody may take it for one of the new generation.
        """
        self.clear_order()
        last = self.read_word()
        if last is None:
            return Progress()
        try:
            self.write_word(msgspec.structs.replace(last, generation=-1, left=False, declined=None))
        except OSError:
            (self.path / "progress.json").unlink(missing_ok=True)
        return last.progress

    def add_generation(self, line: GenerationLine) -> None:
        """Appends a finished generation."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path / "generations.jsonl", flags, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def generations(self) -> list[GenerationLine]:
        """All finished generations; a line cut short by a crash is left out."""
        try:
            lines = (self.path / "generations.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        known = []
        for line in lines:
            try:
                known.append(msgspec.json.decode(line, type=GenerationLine))
            except msgspec.DecodeError:
                continue
        return known


def _must_be_ours(folder: pathlib.Path) -> None:
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode):
        raise NotAllowed(f"{folder} is a link or a file, not a folder", hint="remove it, or name another by --dir")
    if seen.st_uid != os.geteuid():
        raise NotAllowed(f"{folder} belongs to uid {seen.st_uid}, not to you", hint="name another by --dir")


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Written aside and renamed, for this user's eyes only."""
    aside = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(aside, flags, 0o600), "wb") as file:
        file.write(content)
    aside.replace(path)


def read_whole(path: pathlib.Path, kind: type[Kind]) -> Kind | None:
    """What was written last; None when nothing was, or nothing that is a `kind`."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            content: Any = file.read()
        return msgspec.json.decode(content, type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
