"""Placements and plans in files: TOML or JSON that a person writes, JSON that a search leaves."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import toml

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.pipeline.schedule import Schedule
from ones_slurm.pipeline.spec import Placement

PLAN_VERSION = 1

T = TypeVar("T")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with what the search knew about it; `period_us` is the time per micro-batch in its steady state."""

    schedule: Schedule
    makespan_us: float
    makespan_bound_us: float
    period_us: float | None
    period_bound_us: float
    version: int = PLAN_VERSION


def read_placement(path: Path) -> Placement:
    """A placement from TOML (`.toml`) or JSON. In TOML each block is a `[[blocks]]` table."""
    return _decoded(_table(path), Placement, path)


def read_plan(path: Path) -> Plan:
    """A plan that `write_plan` left."""
    table = _table(path)
    if table.get("version") != PLAN_VERSION:
        raise UsageError(f"{path}: not a plan of version {PLAN_VERSION}", hint="ones pipeline search -o writes one")
    return _decoded(table, Plan, path)


def is_plan(path: Path) -> bool:
    """Whether a file holds a plan rather than a placement."""
    return "schedule" in _table(path)


def write_placement(placement: Placement, path: Path) -> None:
    """TOML or JSON, by the name's ending."""
    table = msgspec.to_builtins(placement)
    _replace(
        path, toml.dumps(_without_none(table)) if path.suffix == ".toml" else msgspec.json.encode(placement).decode()
    )


def write_plan(plan: Plan, path: Path) -> None:
    """JSON, written aside and renamed."""
    _replace(path, msgspec.json.encode(plan).decode())


def read_blocks(path: Path) -> Placement:
    """The placement in a file: of a plan or by itself."""
    return read_plan(path).schedule.placement if is_plan(path) else read_placement(path)


def write_kept(kept: msgspec.Struct, path: Path) -> None:
    """JSON for ourselves, written aside and renamed."""
    _replace(path, msgspec.json.encode(kept).decode())


def _table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    try:
        table = tomllib.loads(text) if path.suffix == ".toml" else msgspec.json.decode(text)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, RecursionError) as error:  # the last: brackets without end
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise UsageError(
            f"{path} is not {kind}: {error}", hint="files that end in .toml are TOML, others JSON"
        ) from None
    if not isinstance(table, dict):
        raise UsageError(f"{path} holds no table", hint="name, devices and blocks are needed")
    return table


def _decoded(table: dict[str, Any], kind: type[T], path: Path) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}", hint="see docs/pipeline.md for the keys") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
