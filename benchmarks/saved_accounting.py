"""A large file as `sacct -D -P` writes it: a year of a GPU site, made from a seed."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

COLUMNS = (
    "JobID|JobIDRaw|User|Account|Partition|JobName|State|ExitCode|Submit|Eligible|Start|End|NNodes|NodeList|AllocTRES"
    "|NCPUS|Timelimit|Comment|SubmitLine"
)
NODES = 600
GPUS_PER_NODE = 4
_DAY_S = 86400
_STATES = ("COMPLETED|0:0", "FAILED|1:0", "TIMEOUT|0:0", "CANCELLED by 1017|0:0", "OUT_OF_MEMORY|0:125")


def write(path: Path, rows: int, *, days: int, until_s: float, seed: int = 1) -> None:
    """Writes so many rows whose jobs were submitted over the `days` before `until_s`."""
    with path.open("w", encoding="utf-8") as file:
        file.write(COLUMNS + "\n")
        file.writelines(_rows(rows, days, until_s, np.random.default_rng(seed)))


def _rows(rows: int, days: int, until_s: float, rng: np.random.Generator) -> Iterator[str]:
    """Nine jobs in ten have one row; the others were requeued or resized, and one in a hundred was never started."""
    submits = np.sort(rng.integers(int(until_s) - days * _DAY_S, int(until_s), rows))
    waits = rng.exponential(1800, rows).astype(int)
    runs = np.minimum(rng.lognormal(8, 1.5, rows), _DAY_S).astype(int) + 1
    sizes = np.minimum(rng.geometric(0.5, rows), 32)
    firsts = rng.integers(0, NODES - 32, rows)
    users, kinds = rng.integers(0, 300, rows), rng.random(rows)
    states = rng.choice(len(_STATES), rows, p=(0.7, 0.12, 0.06, 0.1, 0.02))
    number, left = 1, 0
    for at in range(rows):
        if left == 0:
            number, again = number + 1, kinds[at] > 0.95
            left = 2 if again else 1
            submit_s = int(submits[at])
        left -= 1
        start_s = submit_s + int(waits[at])
        end_s = start_s + int(runs[at])
        user = int(users[number % rows])
        who = f"{number}|{number}|user{user}|project{user % 40}|{'gpu' if user % 3 else 'long'}|train-{user % 17}.sh"
        rest = f"1-00:00:00||sbatch -N{sizes[at]} --gres=gpu:4 train-{user % 17}.sh"
        if kinds[at] < 0.01:
            times = f"{_when(submit_s)}|{_when(submit_s)}|None|{_when(start_s)}"
            yield f"{who}|{_STATES[3]}|{times}|1|None assigned||1|{rest}\n"
            continue
        size, first = int(sizes[at]), 1 + int(firsts[at])
        nodes = f"g{first:04}" if size == 1 else f"g[{first:04}-{first + size - 1:04}]"
        tres = (
            f"billing={size * 64},cpu={size * 64},gres/gpu={size * GPUS_PER_NODE},"
            f"gres/gpu:a100={size * GPUS_PER_NODE},mem={size * 480}G,node={size}"
        )
        state = "REQUEUED|0:0" if left else _STATES[states[at]]
        times = f"{_when(submit_s)}|{_when(submit_s)}|{_when(start_s)}|{_when(end_s) if end_s < until_s else 'Unknown'}"
        if end_s >= until_s:
            state = "RUNNING|0:0"
        yield f"{who}|{state}|{times}|{size}|{nodes}|{tres}|{size * 64}|{rest}\n"
        submit_s = end_s + 15  # if it was requeued


def _when(at_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))
