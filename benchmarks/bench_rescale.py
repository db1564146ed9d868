"""What a change of size costs: the time in which no step is done, and the steps that are done twice.

Side by side on one throw-away Slurm, for models of three sizes: ranks that come and go in memory, a requeue with a
checkpoint (with Slurm's own delay skipped), and torchrun's elastic restart of the same script. Pauses are read from
what each rank wrote down at each step: from the last step of the old world to the first one of the new, less a usual
step.

    python -m benchmarks.bench_rescale [millions of parameters…]
"""

import itertools
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ones_slurm.lab import Lab, LabSpec

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = CHECKOUT / "benchmarks" / "rescale_train.py"
DRIVER = CHECKOUT / "tests" / "elastic" / "scripted_run.py"
# Changes in memory, and of the other two ways, which take their time.
MODELS = {1: (12, 2), 25: (4, 1), 110: (2, 1)}
CHECKPOINT_EVERY_S = 5
GOAL_MEDIAN_S, GOAL_P95_S, GOAL_RATIO = 0.3, 1.0, 20.0
_PATIENCE_S = 600.0


class Done(NamedTuple):
    """A step as one rank saw it."""

    at_s: float
    step: int
    ranks: int
    formation: int


class Change(NamedTuple):
    """One change of size: `pause_s` without a step, `lost` steps that were done twice."""

    pause_s: float
    lost: int


class Training:
    """One job on the lab, and what its ranks have written."""

    def __init__(self, lab: Lab, name: str, millions: int) -> None:
        self.lab, self.folder = lab, lab.folder / "home" / "user1" / f"{name}-{millions}"
        lab.run(["mkdir", "-p", str(self.folder.name)])
        self.env = {
            "LOG": str(self.folder),
            "ORDERS": str(self.folder),
            "PARAMETERS": str(millions * 1_000_000),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(CHECKOUT),
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        self.id = ""

    def submit(self, wrap: str) -> None:
        exports = ",".join(["ALL", *(f"{name}={value}" for name, value in self.env.items())])
        line = ["sbatch", "--parsable", "--requeue", "--open-mode=append", "-N3", "--ntasks-per-node=1"]
        line += ["--gres=gpu:1", "-o", f"{self.folder}/out", f"--export={exports}", "--wrap", wrap]
        self.id = self.lab.run(line).stdout.strip()

    def end(self) -> None:
        self.lab.run(["scancel", self.id], check=False)
        self.until(lambda: not self.lab.run(["squeue", "-h", "-j", self.id], check=False).stdout.strip())

    def steps(self) -> list[Done]:
        """Of all ranks, in order of time; only those that counted."""
        lines = []
        for path in self.folder.glob("*.jsonl"):
            if path.name != "said.jsonl":
                lines += [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]
        return sorted(Done(*line[:4]) for line in lines if line[4])

    def until(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not fact():
            if time.monotonic() > deadline:
                raise TimeoutError((self.folder / "out").read_text()[-2000:])
            time.sleep(0.1)

    def trains_on(self, ranks: int, steps: int = 8) -> None:
        """Waits until it has done some steps at this size."""

        def enough() -> bool:
            done = self.steps()
            return len({one.step for one in done[-4 * steps * ranks :] if one.ranks == ranks}) >= steps and (
                done[-1].ranks == ranks
            )

        self.until(enough)

    def change(self, begin_s: float) -> Change:
        """The longest time without a step since `begin_s`."""
        done = [one for one in self.steps() if one.at_s > begin_s - 5]
        gaps = [(after.at_s - before.at_s, after.at_s) for before, after in itertools.pairwise(done)]
        gap_s, resumed_s = max(gap for gap in gaps if gap[1] > begin_s)
        worlds: dict[int, set[tuple[int, int, bool]]] = {}
        firsts: dict[int, float] = {}
        for one in done:
            worlds.setdefault(one.step, set()).add((one.ranks, one.formation, one.at_s >= resumed_s))
            firsts.setdefault(one.step, one.at_s)
        usual_s = statistics.median(after - before for before, after in itertools.pairwise(sorted(firsts.values())))
        return Change(max(gap_s - usual_s, 0.0), sum(len(known) > 1 for known in worlds.values()))


def in_memory(lab: Lab, millions: int, changes: int) -> dict[str, list[Change]]:
    """Down to two ranks and up to three again, `changes` times each."""
    job = Training(lab, "memory", millions)
    job.submit(f"exec python {DRIVER} --checkpoint-every 1e9 -- python {TRAIN}")
    job.trains_on(3)
    found: dict[str, list[Change]] = {"shrink": [], "grow": []}
    for number in range(1, 2 * changes + 1):
        kind, nodes = ("shrink", ["c1", "c2"]) if number % 2 else ("grow", ["c1", "c2", "c3"])
        begin_s = time.time()
        order = {"generation": number, "kind": kind, "go": True, "live": True, "batch": 0, "nodes": nodes}
        (job.folder / "order.new").write_text(json.dumps(order))
        (job.folder / "order.new").rename(job.folder / "order.json")
        job.trains_on(len(nodes))
        found[kind].append(job.change(begin_s))
    job.end()
    return found


def requeue(lab: Lab, millions: int, changes: int) -> list[Change]:
    """Saved, requeued, started again."""
    job = Training(lab, "requeue", millions)
    job.submit(f"exec python {DRIVER} --checkpoint-every 1e9 -- python {TRAIN}")
    found = []
    for _ in range(changes):
        job.trains_on(3)
        begin_s = time.time()
        lab.run(["scancel", "--batch", "--signal=USR2", job.id])
        job.until(lambda: lab.run(["squeue", "-h", "-j", job.id, "-o", "%t"], check=False).stdout.strip() == "PD")
        lab.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now+1"], user="operator", check=False)
        job.until(lambda begin_s=begin_s: any(one.at_s > begin_s + 2 for one in job.steps()))  # type: ignore[misc]
        time.sleep(2)
        job.trains_on(3)
        found.append(job.change(begin_s))
    job.end()
    return found


def torchrun(lab: Lab, millions: int, changes: int) -> list[Change]:
    """One of three workers is killed, and torchrun's agent starts all of them again from the newest checkpoint.

    That is the least that a change of its world takes: with several agents their rendezvous comes on top.
    """
    job = Training(lab, "torchrun", millions)
    job.env |= {"ONES_RUN_DIR": str(job.folder), "ONES_CHECKPOINT_EVERY_S": str(CHECKPOINT_EVERY_S)}
    lab.run(["mkdir", "-p", f"{job.folder.name}/checkpoints"])
    job.submit(
        "srun -N1 -n1 -w c1 python -m torch.distributed.run --standalone --nproc-per-node=3 --local-addr=127.0.0.1 "
        f"--max-restarts=100 --monitor-interval=0.1 {TRAIN}"
    )
    found = []
    for _ in range(changes):
        job.trains_on(3)
        time.sleep(CHECKPOINT_EVERY_S)
        youngest = max(job.folder.glob("c1-*.jsonl"), key=lambda path: path.stat().st_ctime)
        begin_s = time.time()
        lab.run(["kill", "-9", youngest.stem.partition("-")[2]], host="c1")
        job.until(lambda begin_s=begin_s: any(one.at_s > begin_s + 3 for one in job.steps()))  # type: ignore[misc]
        time.sleep(2)
        job.trains_on(3)
        found.append(job.change(begin_s))
    job.end()
    return found


def run(models: list[int] | None = None) -> list[dict[str, Any]]:
    """All three ways for each model, on one lab; takes some minutes."""
    rows: list[dict[str, Any]] = []
    with Lab(LabSpec(name=f"rescale-{os.getpid()}", nodes=3, gpus_per_node=1)) as lab:
        for millions in models or list(MODELS):
            changes, others = MODELS[millions]
            memory = in_memory(lab, millions, changes)
            requeued = requeue(lab, millions, others)
            restarted = torchrun(lab, millions, others)
            rows += figures(millions, memory, requeued, restarted)
    return rows


def figures(
    millions: int, memory: dict[str, list[Change]], requeued: list[Change], restarted: list[Change]
) -> list[dict[str, Any]]:
    """One row a way, and how many times the other ways take."""
    goal = {"goal": None, "unit": "s", "better": "lower"}
    name = f"{millions} M parameters"
    both = memory["grow"] + memory["shrink"]
    pauses = sorted(change.pause_s for change in both)
    rows = [row(f"{name}: pause of a {kind} in memory, median", changes, **goal) for kind, changes in memory.items()]
    if millions == 1:
        rows[0]["goal"] = rows[1]["goal"] = GOAL_MEDIAN_S
        rows.append({**row(f"{name}: pause in memory, 95th percentile", both, **goal), "goal": GOAL_P95_S})
        rows[-1]["value"] = round(pauses[min(int(len(pauses) * 0.95), len(pauses) - 1)], 3)
    rows.append(row(f"{name}: pause of a requeue with a checkpoint", requeued, **goal))
    rows += [
        row(f"{name}: pause of torchrun's restart, {kind}", changes, **goal) for kind, changes in restarted.items()
    ]
    slow = [requeued, *restarted.values()]
    shortest = min(statistics.median(change.pause_s for change in changes) for changes in slow)
    ratio = shortest / max(statistics.median(pauses), 1e-3)
    rows.append(
        {
            "name": f"{name}: the shortest of the others over in memory",
            "value": round(ratio, 1),
            "unit": "x",
            "goal": GOAL_RATIO,
            "better": "higher",
            "note": "medians",
        }
    )
    return rows


def row(name: str, changes: list[Change], **rest: Any) -> dict[str, Any]:
    """A median pause; the note says how many there were, the longest, and the work that was lost."""
    pauses = [change.pause_s for change in changes]
    lost = sum(change.lost for change in changes)
    note = f"{len(changes)} changes, longest {max(pauses):.2f} s, {lost} steps done twice"
    return {"name": name, "value": round(statistics.median(pauses), 3), "note": note, **rest}


if __name__ == "__main__":
    print(json.dumps(run([int(word) for word in sys.argv[1:]] or None), indent=2))
