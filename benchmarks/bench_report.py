"""`ones report` over a large site's year: 1,000,000 rows of `sacct`, one process, one core.

The file is made from a seed (`saved_accounting.py`). Measured in CPU seconds of a fresh process, Python's start
included, because a benchmark shares its machine; peak memory is that of the process.
"""

import contextlib
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from saved_accounting import write

CHECKOUT = Path(__file__).resolve().parent.parent
ROWS = 1_000_000
DAYS = 365
# The goals that the project set itself.
INGEST_GOAL_S, MEMORY_GOAL_MB, ANSWER_GOAL_S = 60.0, 500.0, 1.0
_WEEK = ("-a", "-S", "now-7days")


def run() -> list[dict[str, Any]]:
    """Reads the file, reads it again, and asks."""
    with tempfile.TemporaryDirectory() as scratch:
        dump, ledger = Path(scratch) / "sacct.psv", Path(scratch) / "ledger.sqlite"
        write(dump, ROWS, days=DAYS, until_s=time.time())
        what = f"{ROWS:,} rows of sacct ({dump.stat().st_size / 1e6:.0f} MB, a year)"
        begun_s = time.monotonic()
        cpu_s, memory_mb = _report("--from", str(dump), "--ledger", str(ledger), "--by", "account")
        wall_s, size_mb = time.monotonic() - begun_s, ledger.stat().st_size / 1e6
        note = f"CPU time; {wall_s:.0f} s of wall time here, a ledger of {size_mb:.0f} MB"
        before = _content(ledger)
        again_s, _ = _report("--from", str(dump), "--ledger", str(ledger), "--by", "account")
        same = _content(ledger) == before
        answers = {name: _report("--ledger", str(ledger), *_WEEK, *more)[0] for name, more in _QUESTIONS.items()}
    results = [
        _result(f"{what}: taken", cpu_s, "s", INGEST_GOAL_S, note),
        _result(f"{what}: peak memory", memory_mb, "MB", MEMORY_GOAL_MB, "of the process that takes them"),
        _result(f"{what}: taken again", again_s, "s", None, "nothing is changed" if same else "IT CHANGED THE LEDGER"),
    ]
    for name, answer_s in answers.items():
        results.append(_result(f"{name} of the last 7 days", answer_s, "s", ANSWER_GOAL_S, "CPU time"))
    return results


_QUESTIONS = {
    "ones report": (),
    "ones report --by day": ("--by", "day"),
    "ones report -u user7": ("-u", "user7"),
    "ones report --by job": ("--by", "job"),
}


def _report(*words: str) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of a report."""
    argv = [sys.executable, "-c", _CHILD, *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, int(done.stderr.split()[-1]) * 1024 / 1e6


# Runs the command and says last what its peak was.
_CHILD = """
import resource, sys
from ones_slurm.cli.main import ones
ones(["report", *sys.argv[1:]], prog_name="ones", standalone_mode=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def _content(ledger: Path) -> list[Any]:
    """What is in the ledger, in sums that no change of a row leaves as they are."""
    with contextlib.closing(sqlite3.connect(ledger)) as db:
        return [
            db.execute("select count(*), total(digest), sum(read_s), sum(end_s) from rows").fetchone(),
            db.execute("select count(*), sum(start_s), sum(end_s), sum(gpus) from segments").fetchone(),
            db.execute("select count(*) from oddities").fetchone(),
            db.execute("select * from about").fetchall(),
        ]


def _result(name: str, value: float, unit: str, goal: float | None, note: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "better": "lower", "note": note}
