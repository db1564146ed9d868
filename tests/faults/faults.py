#!/usr/bin/env python3
"""Breaks everything on purpose: `make faults` with 500 faults, the suite with a few.

A run prints what it does, then the work lost by kind of fault, writes both to `build/faults/`, and ends with exit code
1 when anything happened that must not. Its seed is then kept in `seeds_that_failed.txt` and comes first next time.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import signal
import sys
import time
import traceback

import msgspec
from ground import Ground
from kinds import Faults
from rich.console import Console
from rich.table import Table
from schedule import KINDS, Fault, schedule
from stream import CHECKPOINT_EVERY_S, Loss, Stream, losses
from watch import Watch

from ones_slurm.lab import Lab

FAILED_SEEDS = pathlib.Path(__file__).parent / "seeds_that_failed.txt"
BUILD = pathlib.Path(__file__).parents[2] / "build" / "faults"
# Work that comes to light as lost this long after a fault is put down to it. Ours: a dead node's 30 s and a start.
BLAMED_FOR_S = 60.0
# The kinds that end processes of a training, or its node for Slurm: back to the newest checkpoint. All others: nothing.
COSTLY = ("kill worker", "kill srun", "kill ones-run", "cut node", "stop slurmd", "stop slurmctld", "kill slurmctld")
# One interval, the step that was under way, and the save itself on an overloaded machine.
MOST_LOST_S = CHECKPOINT_EVERY_S + 2.0
FINISH_WITHIN_S = 600.0
# Of a seed that once failed: all that were found so far came within the first round of all kinds.
KEPT_COUNT = 25


class Done(msgspec.Struct, frozen=True):
    """A fault that was done, on the clock."""

    fault: Fault
    victim: str
    began_s: float
    ended_s: float


class Told(msgspec.Struct):
    """What a run came to."""

    seed: int
    faults: list[Done] = []
    skipped: list[str] = []
    losses: dict[str, list[Loss]] = {}
    completed: int = 0
    took_s: float = 0.0
    mended: list[str] = []
    violations: list[str] = []


def run(seed: int, plan: list[Fault], *, nodes: int, name: str, within_s: float) -> Told:
    """Does a schedule on a lab of its own, over the stream of that seed; begins no further fault after `within_s`."""
    told, began_s = Told(seed), time.monotonic()
    with Lab(Ground.spec(name, nodes)) as lab:
        ground = Ground(lab)
        ground.start_daemon()
        stream = Stream(ground, seed, most=max(2, nodes // 2), widest=max(2, nodes // 2))
        faults, watch = Faults(ground, stream), Watch(ground, stream)
        try:
            _disturb(told, plan, faults, watch, began_s + within_s)
            stream.open = False
            deadline = time.monotonic() + FINISH_WITHIN_S
            while stream.unfinished() or faults.killed:
                watch.look(faults.killed)
                left = [f"{one.name} ({one.job_id} {one.state})" for one in stream.unfinished()]
                assert time.monotonic() < deadline, f"not over {FINISH_WITHIN_S:g} s after the last fault: {left}"
                time.sleep(1.0)
            watch.end()
            ground.end_daemon(signal.SIGTERM)
        except Exception:
            watch.violations.append(traceback.format_exc())
        told.completed = sum(training.state == "COMPLETED" for training in stream.trainings)
        for training in stream.trainings:
            for loss in losses(training.name, training.steps()):
                told.losses.setdefault(blamed(loss, told.faults), []).append(loss)
        told.mended = watch.mended
        told.violations = watch.violations + _too_much(told.losses)
        if told.violations:
            _keep(ground, stream, seed)
    told.took_s = time.monotonic() - began_s
    return told


def _disturb(told: Told, plan: list[Fault], faults: Faults, watch: Watch, until_s: float) -> None:
    stream = watch.stream
    _wait_for_the_first(stream, watch, faults)
    for fault in plan:
        if time.monotonic() > until_s:
            told.skipped += ["no time left"] * (len(plan) - fault.number)
            return
        began_s = time.time()
        victim = faults.do(fault)
        if victim is None:
            told.skipped.append(fault.kind)
        else:
            told.faults.append(Done(fault, victim, began_s, time.time()))
        print(f"{time.strftime('%H:%M:%S')} {fault.number:3} {fault.kind}: {victim} {fault.lasts_s:.1f} s", flush=True)
        due_s = time.monotonic() + fault.pause_s
        while True:
            stream.feed()
            watch.look(faults.killed)
            if time.monotonic() >= due_s:
                break
            time.sleep(0.5)


def _wait_for_the_first(stream: Stream, watch: Watch, faults: Faults) -> None:
    deadline = time.monotonic() + FINISH_WITHIN_S
    stream.feed()
    while not any(training.steps() for training in stream.trainings):
        watch.look(faults.killed)
        assert time.monotonic() < deadline, "no training begins"
        time.sleep(0.5)


def blamed(loss: Loss, done: list[Done]) -> str:
    """The kind of the fault that a loss is put down to: the last one to that training before it, else the last."""
    near = [
        one for one in done if one.began_s - 1.0 <= loss.broke_s + 1.0 and loss.broke_s <= one.ended_s + BLAMED_FOR_S
    ]
    own = [one for one in near if one.victim == loss.training]
    return (own or near)[-1].fault.kind if near else "no fault"


def _too_much(found: dict[str, list[Loss]]) -> list[str]:
    """Losses beyond what is promised."""
    wrong = []
    for kind, many in found.items():
        for loss in many:
            allowed_s = MOST_LOST_S if kind.startswith(COSTLY) else 0.0
            if loss.work_s > allowed_s:
                what = f"{loss.training} lost {loss.work_s:.1f} s ({loss.steps} steps) by {kind}"
                wrong.append(f"{what}, {allowed_s:g} s are allowed")
    return wrong


def _keep(ground: Ground, stream: Stream, seed: int) -> None:
    """What a person needs who looks for the cause."""
    folder = BUILD / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    kept = [ground.log, *ground.lab.folder.glob("log/slurm*.log"), *stream.folder.glob("t*.*")]
    kept += ground.state_dir.glob("journal.sqlite*")
    for path in kept:
        with contextlib.suppress(OSError):
            (folder / path.name).write_bytes(path.read_bytes())


def table(told: Told) -> Table:
    """The work lost, by kind."""
    shown = Table("fault", "done", "trainings that went back", "steps", "most work lost (s)", "on average (s)")
    counts = collections.Counter(one.fault.kind for one in told.faults)
    for kind in [*KINDS, "no fault"]:
        lost = told.losses.get(kind, [])
        if not counts[kind] and not lost:
            continue
        most, mean = (
            max((loss.work_s for loss in lost), default=0.0),
            sum(loss.work_s for loss in lost) / max(counts[kind], 1),
        )
        shown.add_row(
            kind, str(counts[kind]), str(len(lost)), str(sum(loss.steps for loss in lost)), f"{most:.1f}", f"{mean:.2f}"
        )
    return shown


def failed_seeds() -> list[int]:
    """Those that once failed."""
    lines = FAILED_SEEDS.read_text().splitlines() if FAILED_SEEDS.exists() else []
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument(
        "--seed", type=int, action="append", help="default: those that failed once, then one of the clock"
    )
    parser.add_argument("--kinds", help="only these, separated by commas")
    parser.add_argument("--minutes", type=float, default=55.0, help="no further fault after that")
    given = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    # Those that failed once get a short run each, the rest of the time is for a new one.
    runs = [(seed, given.count) for seed in given.seed or []] or [
        *((seed, KEPT_COUNT) for seed in failed_seeds()),
        (int(time.time()), given.count),
    ]
    kinds = tuple(given.kinds.split(",")) if given.kinds else KINDS
    until_s, bad = time.monotonic() + given.minutes * 60, 0
    for seed, count in runs:
        left_s = max(until_s - time.monotonic(), 60.0)
        plan = schedule(seed, count, kinds)
        told = run(seed, plan, nodes=given.nodes, name=f"faults-{os.getpid()}", within_s=left_s)
        console = Console(width=110)
        console.print(table(told))
        console.print(
            f"seed {seed}: {len(told.faults)} faults, {told.completed} trainings complete, {told.took_s:.0f} s"
        )
        if told.mended:
            console.print(f"Slurm's own damage, mended as by an administrator: {'; '.join(told.mended)}")
        for what in told.violations:
            console.print(f"VIOLATED {what}", markup=False)
        (BUILD / f"seed-{seed}.json").write_text(json.dumps(msgspec.to_builtins(told), indent=1))
        with (BUILD / "table.txt").open("w") as file:
            Console(file=file, width=110).print(table(told))
        if told.violations:
            bad = 1
            if seed not in failed_seeds():
                with FAILED_SEEDS.open("a") as file:
                    file.write(f"{seed}\n")
    return bad


if __name__ == "__main__":
    sys.exit(main())
