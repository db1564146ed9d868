"""JSON of our structs with paths in them, which msgspec leaves to its user."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_json(thing: Any) -> bytes:
    return msgspec.json.encode(thing, enc_hook=str)


def from_json(text: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(text, type=kind, dec_hook=_path)


def _path(kind: type, raw: Any) -> Any:
    if kind is Path:
        return Path(raw)
    raise NotImplementedError(kind)
