"""One tick of `onesd` over a large queue: CPU seconds, and the memory of a daemon that ticks.

The tick is everything from Slurm's answer to the journal on disk: reading the JSON of `squeue` and the nodes, joining
it with what the jobs say, the policy, the reconciler, the transaction. Commands answer from files (their own CPU time
is Slurm's). Each figure is the median of several fresh processes.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tick_records import RELEASES, job_id, write_recorded_format

CHECKOUT = Path(__file__).resolve().parent.parent
NODES = 1000
RUNNING = 400
# Queued jobs, CPU seconds of a tick at most, MiB of the daemon at most (the goals that the project set itself).
SIZES = ((1_000, 0.3, 120.0), (10_000, 3.0, None))
PROCESSES = 3
TICKS = 5


def run() -> list[dict[str, Any]]:
    """Measures both sizes in the formats of the oldest and the newest release."""
    results = []
    for jobs, cpu_goal_s, memory_goal_mib in SIZES:
        for release in RELEASES:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                write_recorded_format(folder, jobs, NODES, release)
                what = f"{jobs:,} queued jobs, {NODES:,} nodes, {release}"
                size_mb = (folder / "squeue.json").stat().st_size / 1e6
                ticks = [_child("tick", folder) for _ in range(PROCESSES)]
                results.append(
                    _result(
                        f"one tick: {what}",
                        statistics.median(tick["cpu_s"] for tick in ticks),
                        "s CPU",
                        cpu_goal_s,
                        f"{size_mb:.0f} MB of JSON, {ticks[0]['targets']} targets, {ticks[0]['actions']} actions, "
                        f"first tick {statistics.median(tick['first_cpu_s'] for tick in ticks):.2f} s",
                    )
                )
                peaks = [_daemon_peak_mib(folder, number) for number in range(PROCESSES)]
                results.append(
                    _result(
                        f"onesd memory: {what}",
                        statistics.median(peaks),
                        "MiB peak",
                        memory_goal_mib,
                        f"onesd --observe after {TICKS} ticks",
                    )
                )
    return results


def _result(name: str, value: float, unit: str, goal: float | None, note: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "better": "lower", "note": note}


def _child(part: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, part, str(folder)]
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    told = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    answer: dict[str, Any] = json.loads(told)
    return answer


def measure_ticks(folder: Path) -> dict[str, Any]:
    """CPU seconds of a tick in this process: the median of some ticks after the first one, which fills caches."""
    import numpy as np

    from ones_slurm.engine.journal import Journal
    from ones_slurm.engine.loop import Engine
    from ones_slurm.engine.records import Run
    from ones_slurm.model.settings import Site
    from ones_slurm.policy.registry import policy_named
    from ones_slurm.slurm.backoff import Backoff
    from ones_slurm.slurm.board import Board
    from ones_slurm.slurm.cli_client import CommandClient
    from ones_slurm.slurm.live import LiveCluster

    answers = {
        "squeue": (folder / "squeue.json").read_text(encoding="utf-8"),
        "scontrol": (folder / "nodes.txt").read_text(encoding="utf-8"),
        "version": (folder / "version.txt").read_text(encoding="utf-8"),
    }

    def canned(argv: list[str], *, env: object, timeout_s: float) -> "subprocess.CompletedProcess[str]":  # noqa: ARG001
        wanted = "version" if "--version" in argv else argv[0]
        return subprocess.CompletedProcess(argv, 0, answers[wanted], "")

    board = Board()
    for number in range(RUNNING):
        board.put(str(job_id(number)), _word(number), time.time())
    site = Site()
    with tempfile.TemporaryDirectory() as state, Journal.open(f"{state}/journal.sqlite") as journal:
        journal.begin_run(Run(policy="equal", seed=1), time.time())
        client = CommandClient(canned)
        cluster = LiveCluster(client, board, site, _Allowed(), backoff=Backoff(np.random.default_rng(1)))
        engine = Engine(cluster, policy_named("equal"), journal, site.engine, seed=1)
        spent_s = []
        for _ in range(TICKS + 1):
            began_s = time.process_time()
            latest = engine.tick()
            spent_s.append(time.process_time() - began_s)
            if latest.trouble or latest.view is None:
                raise RuntimeError(f"the tick did not happen: {latest.trouble}")
        first, *others = spent_s
        return {
            "cpu_s": statistics.median(others),
            "first_cpu_s": first,
            "targets": len(latest.plan.targets),
            "actions": sum(1 for move in journal.moves()),
        }


class _Allowed:
    can_shrink = True
    can_requeue = True


def _word(number: int) -> Any:
    from ones_slurm.model.wire import Phase, Progress, Sync

    progress = Progress(epoch=1, step=100, samples=6400, samples_per_s=100.0 + number, base_batch=64)
    return Sync(phase=Phase.TRAINING, generation=1, batch=64, ranks=8, progress=progress)


# They answer as Slurm's commands would.
COMMANDS = {
    "squeue": 'exec cat "{folder}/squeue.json"',
    "sacct": "exit 0",
    "scontrol": 'case "$*" in --version) f=version;; *config) f=config;; *) f=nodes;; esac; exec cat "{folder}/$f.txt"',
}


def _daemon_peak_mib(folder: Path, number: int) -> float:
    """The high-water mark of a real `onesd` that has ticked some times on commands that answer from files."""
    commands, state = folder / "bin", folder / f"state-{number}"
    commands.mkdir(exist_ok=True)
    for name, body in COMMANDS.items():
        script = commands / name
        script.write_text(f"#!/bin/sh\n{body.format(folder=folder)}\n", encoding="utf-8")
        script.chmod(0o755)
    state.mkdir()
    site = state / "site.toml"
    daemon_table = f'auth = "socket"\nsocket = "{state}/onesd.sock"\nstate_dir = "{state}"'
    site.write_text(f"[engine]\ninterval_s = 0.5\n[daemon]\n{daemon_table}\n", encoding="utf-8")
    env = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)}
    argv = [sys.executable, "-m", "ones_slurm.daemon.main", "--site", str(site), "--observe"]
    with open(state / "log", "wb") as log, subprocess.Popen(argv, env=env, stdout=log, stderr=log) as daemon:  # noqa: PTH123
        try:
            deadline = time.monotonic() + 90
            while _ticks(state / "journal.sqlite") < TICKS:
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"onesd does not tick: {(state / 'log').read_text()[-2000:]}")
                time.sleep(0.2)
            status = Path(f"/proc/{daemon.pid}/status").read_text(encoding="utf-8")
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
    peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return peak_kib / 1024


def _ticks(path: Path) -> int:
    from ones_slurm.engine.journal import Journal
    from ones_slurm.model.errors import NotFound

    try:
        with Journal.read(path) as journal:
            return journal.last_tick()
    except NotFound:
        return 0


if __name__ == "__main__":
    print(json.dumps({"tick": measure_ticks}[sys.argv[1]](Path(sys.argv[2]))))
