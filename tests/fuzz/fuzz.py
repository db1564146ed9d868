#!/usr/bin/env python3
"""Feeds every reader of outside text with broken inputs: `make fuzz` by the million, the suite with some of each.

A fault is an exception that is no refusal, an input that takes longer than a second, or a process that grows beyond a
gigabyte. Each leaves the input in `build/fuzz/`, and ends the run with exit code 1.
"""

import argparse
import gc
import multiprocessing
import resource
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec
from mutate import mutations
from readers import Reader, readers
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

LONGEST_S = 1.0
MOST_MIB = 1024.0
FOUND = Path(__file__).parents[2] / "build" / "fuzz"
_PIECE = 20_000


class Told(msgspec.Struct):
    """What a reader did with its inputs."""

    inputs: int = 0
    read: int = 0
    slowest_s: float = 0.0
    peak_mib: float = 0.0
    faults: list[tuple[str, bytes]] = []


def try_out(reader: Reader, seed: int, count: int) -> Told:
    """Runs one reader; the collector is kept from the clock, for its pauses are nobody's fault here."""
    told = Told(faults=[])
    for data in mutations(reader.seeds, seed, count):
        began_s = time.perf_counter()
        try:
            reader.read(data)
            told.read += 1
        except reader.refusals:
            pass
        except Exception:
            told.faults.append((traceback.format_exc(limit=-3), data))
        took_s = time.perf_counter() - began_s
        told.slowest_s = max(told.slowest_s, took_s)
        if took_s > LONGEST_S:
            told.faults.append((f"took {took_s:.1f} s", data))
        told.inputs += 1
        if told.inputs % 500 == 0:
            gc.collect()
    told.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if told.peak_mib > MOST_MIB:
        told.faults.append((f"grew to {told.peak_mib:.0f} MiB", b""))
    return told


def _piece(work: tuple[str, int, int]) -> tuple[str, Told]:
    name, seed, count = work
    gc.disable()
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ones-fuzz-") as folder:
        (reader,) = (one for one in readers(Path(folder)) if one.name == name)
        return name, try_out(reader, seed, count)


def _pieces(names: Sequence[str], each: int, seed: int) -> list[tuple[str, int, int]]:
    return [
        (name, seed + number, min(_PIECE, each - done))
        for name in names
        for number, done in enumerate(range(0, each, _PIECE))
    ]


def main() -> int:
    """Prints what came of it, one line a reader."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--inputs", type=int, default=10_000_000, help="over all readers [10 million]")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--reader", action="append", help="only this one; may be given again")
    asked.add_argument("--processes", type=int, default=2)
    given = asked.parse_args()
    names = given.reader or [reader.name for reader in readers(Path())]
    pieces = _pieces(names, -(-given.inputs // len(names)), given.seed)
    total = {name: Told(faults=[]) for name in names}
    with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=1) as pool, Progress() as bar:
        task = bar.add_task("inputs", total=sum(count for *_, count in pieces))
        for name, told in pool.imap_unordered(_piece, pieces):
            sum_up(total[name], told)
            bar.advance(task, told.inputs)
    return show(total)


def sum_up(total: Told, told: Told) -> None:
    """Adds what one piece of the work told."""
    total.inputs += told.inputs
    total.read += told.read
    total.slowest_s = max(total.slowest_s, told.slowest_s)
    total.peak_mib = max(total.peak_mib, told.peak_mib)
    total.faults += told.faults


def show(total: dict[str, Told]) -> int:
    """Prints the table, keeps the inputs that were faults, and returns the exit code."""
    table = Table("reader", "inputs", "read", "slowest (ms)", "peak (MiB)", "faults")
    for name, told in total.items():
        numbers = (f"{told.inputs:,}", f"{told.read:,}", f"{told.slowest_s * 1e3:.1f}", f"{told.peak_mib:.0f}")
        table.add_row(name, *numbers, str(len(told.faults)))
        for number, (why, data) in enumerate(told.faults[:20]):
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{name.replace(' ', '-')}-{number}").write_bytes(data)
            (FOUND / f"{name.replace(' ', '-')}-{number}.why").write_text(why)
    console = Console()
    console.print(table)
    faults = sum(len(told.faults) for told in total.values())
    console.print(
        f"{sum(told.inputs for told in total.values()):,} inputs, {faults} faults"
        + (f", see {FOUND}" if faults else "")
    )
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
