"""Checkpoints that are whole or do not count.

A file is what `torch.save` writes, followed by a trailer: its length, its SHA-256 and a mark. It is written aside,
synced, renamed, and the folder synced, so a crash leaves the old one or the new one. The trailer finds what a rename
cannot: a disk that lost the tail, a copy cut short, a flipped bit. Loading builds tensors and plain containers only
(`weights_only`), so nobody's file can run code.
"""

import contextlib
import hashlib
import io
import os
import pathlib
import re
import stat
import struct
from collections.abc import Mapping
from typing import Any

import torch

from ones_slurm.model.errors import Failed, NotAllowed

# Length (8 bytes, little-endian), SHA-256 (32 bytes), and the mark with the number of this layout.
_TRAILER = struct.Struct("<Q32s8s")
_MARK = b"ONESCKP1"
_NAME = re.compile(r"step-(\d{12})\.pt")
_BLOCK_BYTES = 1 << 20
# Ours: one to go on from, and one more in case it turns out to be broken.
KEEP = 2


class Broken(Exception):
    """This file is not a whole checkpoint; the text says what is wrong with it."""


def name_of(step: int) -> str:
    """The file name of the checkpoint after `step` steps; names sort as steps do."""
    return f"step-{step:012d}.pt"


def newest_first(folder: pathlib.Path) -> list[pathlib.Path]:
    """All checkpoints of a folder by their names, whole or not."""
    try:
        return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
    except FileNotFoundError:
        return []


def save(folder: pathlib.Path, step: int, state: Mapping[str, Any]) -> pathlib.Path:
    """Writes one checkpoint and removes all but the newest `KEEP`. Raises `OSError` (disk full, say) and leaves
    nothing of the attempt behind."""
    target = folder / name_of(step)
    aside = target.with_suffix(".tmp")
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(aside, flags, 0o600), "wb") as file:
            _write(file, state)
        aside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    _sync_folder(folder)
    for old in newest_first(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return target


def find_whole(folder: pathlib.Path) -> tuple[pathlib.Path | None, list[str]]:
    """The newest whole checkpoint, and one note for each broken one that was passed over.

    A broken one is renamed to `….broken`, so that it neither comes up again nor counts as one of those kept.
    Raises `NotAllowed` for a link or somebody else's file.
    """
    passed: list[str] = []
    for path in newest_first(folder):
        try:
            check(path)
        except Broken as fault:
            passed.append(f"checkpoint {path.name} {fault}")
            path.replace(path.with_suffix(".broken"))
        else:
            return path, [f"{note}; resumed from {path.name}" for note in passed]
    return None, [f"{note}; there was no older one, so training began anew" for note in passed]


def check(path: pathlib.Path) -> int:
    """The length of the state within a whole checkpoint; raises `Broken`, or `NotAllowed` as `load` does."""
    with _open(path) as file:
        return _check(file)


def load(path: pathlib.Path) -> dict[str, Any]:
    """The state in a checkpoint, on the CPU. Raises `Broken`, or `NotAllowed` for a link or somebody else's file."""
    with _open(path) as file:
        section = _Section(file, _check(file))
        try:
            state = torch.load(io.BufferedReader(section), map_location="cpu", weights_only=True)
        except Exception as error:
            raise Failed(
                f"{path.name} is whole, but holds more than tensors and plain containers: {error}",
                hint="the state of the optimizer and the scheduler must be made of those",
            ) from error
    if not isinstance(state, dict):
        raise Failed(f"{path.name} is whole, but is not a checkpoint of ours")
    return state


class _Digesting(io.RawIOBase):
    """Writes through to a file, counts and digests; remembers the fault, for torch reports its own instead."""

    def __init__(self, file: io.BufferedWriter) -> None:
        self.file, self.length, self.digest = file, 0, hashlib.sha256()
        self.fault: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        try:
            self.file.write(block)
        except OSError as error:
            self.fault = error
            raise
        self.digest.update(block)
        self.length += len(block)
        return len(block)


class _Section(io.RawIOBase):
    """The first `length` bytes of a file as a file of its own."""

    def __init__(self, file: io.BufferedReader, length: int) -> None:
        self._file, self._length, self._at = file, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._at)
        block = self._file.read(max(0, min(len(buffer), self._length - self._at)))
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)


def _write(file: io.BufferedWriter, state: Mapping[str, Any]) -> None:
    digesting = _Digesting(file)
    try:
        torch.save(dict(state), digesting)  # type: ignore[arg-type]
    except Exception as error:
        if digesting.fault is not None:
            raise digesting.fault from error
        raise
    file.write(_TRAILER.pack(digesting.length, digesting.digest.digest(), _MARK))
    file.flush()
    os.fsync(file.fileno())


def _open(path: pathlib.Path) -> io.BufferedReader:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise NotAllowed(f"the checkpoint {path} is a symbolic link", hint="put the file itself there") from error
        raise Broken(f"cannot be read: {error.strerror}") from error
    file = os.fdopen(descriptor, "rb")
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid():
        file.close()
        raise NotAllowed(f"the checkpoint {path} is not a plain file of yours", hint="remove it")
    return file


def _check(file: io.BufferedReader) -> int:
    whole = os.fstat(file.fileno()).st_size
    if whole < _TRAILER.size:
        raise Broken("is truncated")
    file.seek(whole - _TRAILER.size)
    length: int
    length, wanted, mark = _TRAILER.unpack(file.read(_TRAILER.size))
    if mark != _MARK or length != whole - _TRAILER.size:
        raise Broken("is truncated")
    file.seek(0)
    digest, left = hashlib.sha256(), length
    while left and (block := file.read(min(left, _BLOCK_BYTES))):
        digest.update(block)
        left -= len(block)
    if digest.digest() != wanted:
        raise Broken("is damaged: its checksum does not fit")
    return length


def _sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
