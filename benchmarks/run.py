"""Runs every `benchmarks/bench_*.py` and prints what was measured beside its goal; `make bench` calls it.

A benchmark is a module with `run() -> list[dict]`, each with the keys `name`, `value`, `unit`, `goal` (a number, or
None), `better` ("lower" or "higher") and `note`. Names on the command line (`tick`) choose some of them. All results go
to `build/bench.json`. The exit code is 1 when a benchmark could not be measured; a missed goal is shown, not failed,
because the machine may be busy.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "build" / "bench.json"
KEYS = {"name", "value", "unit", "goal", "better", "note"}


def main(chosen: list[str]) -> int:
    """Runs them one after the other, so that none disturbs another."""
    sys.path[:0] = [str(HERE.parent), str(HERE)]
    names = [path.stem for path in sorted(HERE.glob("bench_*.py"))]
    unknown = [name for name in chosen if f"bench_{name}" not in names]
    if unknown:
        known = ", ".join(name.removeprefix("bench_") for name in names)
        print(f"there is no benchmark {', '.join(unknown)}; there are {known}", file=sys.stderr)
        return 2
    console = Console()
    measured: list[dict[str, Any]] = []
    failed = []
    for name in names:
        if chosen and name.removeprefix("bench_") not in chosen:
            continue
        console.print(f"[dim]{name} …[/dim]")
        try:
            measured += checked(importlib.import_module(name).run())
        except Exception:
            failed.append(name)
            traceback.print_exc()
    console.print(table(measured))
    write(measured)
    for name in failed:
        console.print(f"[red]{name} could not be measured[/red]")
    return 1 if failed else 0


def checked(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results, if they have the right shape; a benchmark that reports nothing is one that measured nothing."""
    found = list(results)
    if not found:
        raise ValueError("it reports nothing")
    for result in found:
        if set(result) != KEYS or result["better"] not in {"lower", "higher"}:
            raise ValueError(f"a result needs exactly the keys {sorted(KEYS)}, and better is lower or higher: {result}")
    return found


def verdict(result: dict[str, Any]) -> str:
    """ok, miss, or nothing where there is no goal."""
    if result["goal"] is None:
        return ""
    reached = result["value"] <= result["goal"] if result["better"] == "lower" else result["value"] >= result["goal"]
    return "ok" if reached else "miss"


def table(results: Iterable[dict[str, Any]]) -> Table:
    """For people."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for title, justify in (
        ("BENCHMARK", "left"),
        ("VALUE", "right"),
        ("GOAL", "right"),
        ("", "left"),
        ("NOTE", "left"),
    ):
        shown.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for result in results:
        sign = "<" if result["better"] == "lower" else ">"
        goal = "-" if result["goal"] is None else f"{sign} {result['goal']:g} {result['unit']}"
        word = verdict(result)
        colour = {"ok": "[green]ok[/green]", "miss": "[red]miss[/red]"}.get(word, "")
        shown.add_row(result["name"], f"{result['value']:.3g} {result['unit']}", goal, colour, result["note"])
    return shown


def write(results: list[dict[str, Any]]) -> None:
    """For scripts: the list as it is, written aside and renamed."""
    RESULTS.parent.mkdir(exist_ok=True)
    aside = RESULTS.with_suffix(".part")
    aside.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    aside.replace(RESULTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
