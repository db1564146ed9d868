"""What is known of a lab outside this process: `state.json` in its folder, found by name below `BASE_FOLDER`."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from ones_slurm.model.errors import NotAllowed, UsageError

from .codec import from_json, to_json
from .spec import BASE_FOLDER, LabSpec


class LabState(msgspec.Struct, frozen=True, kw_only=True):
    """One lab, alive as long as the process that holds it: the builder at first (then no hosts yet), later the head.

    `holder_start_ticks` is field 22 of /proc/PID/stat: together with the pid it names one process for ever.
    """

    spec: LabSpec
    folder: Path
    slurm_version: str
    holder_pid: int
    holder_start_ticks: int
    host_pids: dict[str, int]

    def alive(self) -> bool:
        return start_ticks(self.holder_pid) == self.holder_start_ticks

    def ended(self) -> "LabState":
        """The same lab without its holder: what is left when a build has failed."""
        return msgspec.structs.replace(self, holder_pid=0, holder_start_ticks=0)


def start_ticks(pid: int) -> int | None:
    """When the process was started, in clock ticks since boot; None if it has ended (zombies have)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command, in parentheses, may hold blanks; field 3 (state) follows it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def folder_of(spec: LabSpec) -> Path:
    return (spec.folder or BASE_FOLDER / spec.name).resolve()


def claim(spec: LabSpec, slurm_version: str) -> LabState:
    """Take the name and the folder: over the remains of a lab that died, never over a living one or others' files."""
    BASE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    found = BASE_FOLDER.lstat()
    if BASE_FOLDER.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        # Root is about to write there, in a place where anybody may create folders.
        raise NotAllowed(f"{BASE_FOLDER} is not a folder of root's alone", hint="look at it, then remove it")
    old = find(spec.name)
    if old is not None and old.alive():
        raise UsageError(f"lab '{spec.name}' is up already", hint=f"end it with: ones lab down --name {spec.name}")
    release(spec.name)
    BASE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    folder = folder_of(spec)
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="a lab wants a folder of its own, which `down` removes")
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    if spec.folder is not None:
        (BASE_FOLDER / spec.name).symlink_to(folder)
    own = start_ticks(os.getpid())
    assert own is not None
    state = LabState(
        spec=spec,
        folder=folder,
        slurm_version=slurm_version,
        holder_pid=os.getpid(),
        holder_start_ticks=own,
        host_pids={},
    )
    save(state)
    return state


def release(name: str) -> None:
    """Remove the folder and the name of a lab that has ended, and the register with its last entry."""
    entry = BASE_FOLDER / name
    if entry.is_symlink():
        # The folder elsewhere is known to be a lab's by its state; anything else there is not ours to remove.
        if (entry / "state.json").exists():
            shutil.rmtree(entry.resolve())
        entry.unlink()
    elif entry.exists():
        shutil.rmtree(entry)
    # Not empty means that other labs live there.
    with suppress(OSError):
        BASE_FOLDER.rmdir()


def save(state: LabState) -> None:
    """Write aside and rename, so that a reader sees a whole state or none."""
    target = state.folder / "state.json"
    draft = target.with_suffix(".new")
    draft.write_bytes(to_json(state))
    draft.rename(target)


def find(name: str) -> LabState | None:
    """The lab of that name; None also if its builder died before it could say anything."""
    try:
        return from_json((BASE_FOLDER / name / "state.json").read_bytes(), LabState)
    except FileNotFoundError:
        return None


def names() -> list[str]:
    """Every lab in the register, running or not."""
    return sorted(p.name for p in BASE_FOLDER.glob("*")) if BASE_FOLDER.is_dir() else []
