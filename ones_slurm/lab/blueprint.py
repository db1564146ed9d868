"""What the starter of a lab tells its first process, and what it is answered."""

from pathlib import Path

import msgspec


class Blueprint(msgspec.Struct, frozen=True):
    """All that the head needs to know. `shares` are read-only for the lab, `folder` is not."""

    name: str
    folder: Path
    addresses: dict[str, str]
    shares: tuple[Path, ...]
    gpu_folder: Path
    gpus: int


class Built(msgspec.Struct, frozen=True):
    """The answer: each host's first process, as the lab's first process numbers it."""

    host_pids: dict[str, int]
