"""`make demo`: six real trainings on a real Slurm, moved while they run, in a cluster that exists for these minutes.

It types the commands that a user would type, as ordinary users of the lab, and at the end checks what it promised:
somebody was made larger, with another batch, somebody was shrunk in place, and every training is as good as it is at a
fixed size.
"""

import contextlib
import json
import math
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.records import MoveRow
from ones_slurm.lab import Lab, LabSpec
from ones_slurm.model.errors import Failed, OnesError
from ones_slurm.model.plan import Status

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "sbatch_templates"
# Ours: ten minutes are promised on two cores; a run that takes longer has gone wrong and should say so.
PATIENCE_S = 480.0
# Ours: 360 test images, so this is five of them; two runs at a fixed size differ by as much.
ACCURACY_NOISE = 0.015


class Submission(msgspec.Struct, frozen=True):
    """One training: when it arrives (seconds after the first has grown), whose it is, its template and options."""

    after_s: float
    user: str
    template: str
    script: str
    options: tuple[str, ...]

    @property
    def pace(self) -> tuple[str, ...]:
        """What it is slowed down by while it is moved, which changes nothing of what it learns."""
        return PACE if self.script == "digits.py" else ()


# All pretended nodes share the few cores of this machine, so a training would hardly be faster on two of them. With
# devices that take their time, each node is worth its own, and a change of size pays as it does on a cluster.
PACE = ("--sample-ms", "1.0")
# The first has the cluster for itself until it has been made larger; the others come so long after that.
SUBMISSIONS = (
    Submission(0, "user1", "ddp.sbatch", "digits.py", ("--seed", "1", "--epochs", "60")),
    Submission(5, "user2", "ddp.sbatch", "digits.py", ("--seed", "2", "--epochs", "60")),
    Submission(20, "user1", "requeue_only.sbatch", "plain_digits.py", ("--epochs", "100")),
    Submission(35, "user2", "ddp.sbatch", "digits.py", ("--seed", "4", "--epochs", "60")),
    Submission(50, "user1", "ddp.sbatch", "digits.py", ("--seed", "5", "--epochs", "60")),
    Submission(65, "user2", "ddp.sbatch", "digits.py", ("--seed", "6", "--epochs", "60")),
)
# Ours: on a machine that is so busy that the first is never made larger, the others come all the same.
ALONE_AT_MOST_S = 120.0


class Demo:
    """The lab, what was submitted to it, and what became of that."""

    def __init__(self, lab: Lab, console: Console) -> None:
        self.lab, self.console = lab, console
        self.began_s = time.monotonic()
        self.jobs: dict[str, Submission] = {}
        self.rows: list[dict[str, object]] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def submit(self, submission: Submission) -> None:
        said = self.lab.run(
            ["sbatch", TEMPLATES / submission.template, *submission.options, *submission.pace],
            user=submission.user,
            env={"ONES_HOME": str(ROOT)},
        )
        self.jobs[said.stdout.split()[-1]] = submission

    def await_daemon(self) -> None:
        """Until onesd answers; a command of ours that fails then has something to say."""
        deadline_s = time.monotonic() + 20.0
        asked = ["ones", "queue"]
        while self.lab.run(asked, user="operator", host="head", check=False).returncode != 0:
            if time.monotonic() > deadline_s:
                raise Failed("onesd does not answer")
            time.sleep(0.2)

    def look(self) -> None:
        self.rows = json.loads(self.lab.run(["ones", "queue", "--json"], user="operator", host="head").stdout)["jobs"]

    def in_queue(self) -> set[str]:
        return set(self.lab.run(["squeue", "-h", "-o", "%i"], user="root").stdout.split())

    def moves(self) -> list[MoveRow]:
        with contextlib.closing(Journal.read(self.lab.folder / "home/operator/onesd/journal.sqlite")) as journal:
            return journal.moves()

    def first_has_grown(self) -> bool:
        """Whether the first training trains on several nodes."""
        return any(row["nodes"] > 1 and row["state"] == "running" and not row["move"] for row in self.rows)

    def why(self, move: MoveRow) -> str:
        """The line of the move's story that has its reason and the figures behind it."""
        story = self.lab.run(["ones", "why", move.job_id], user="operator", host="head").stdout.splitlines()
        return next((line for line in story if "  decision: " in line and move.why in line), "nothing")

    def picture(self) -> Group:
        table = Table(title=f"{self.now_s:4.0f} s", title_justify="left", expand=False)
        for name in ("job", "user", "state", "nodes", "batch", "progress", "move", "why"):
            table.add_column(name, justify="right" if name in ("nodes", "batch") else "left")
        for row in self.rows:
            done = row["done"] or 0.0
            bar = "━" * round(20 * done)
            nodes = "▣" * row["nodes"]
            table.add_row(
                row["job_id"], row["user"], row["state"], nodes, str(row["batch"] or ""),
                Text(f"{bar:20} {done:4.0%}"), row["move"] or "", row["reason"],
            )  # fmt: skip
        gone = [job_id for job_id in self.jobs if job_id not in {row["job_id"] for row in self.rows}]
        return Group(table, Text(f"ended: {', '.join(gone) or 'none yet'}"))

    def watch(self) -> None:
        """Submits, looks and shows until every job has left the queue."""
        self.submit(SUBMISSIONS[0])
        waiting, others_from_s = list(SUBMISSIONS[1:]), math.inf
        with _screen(self.console) as show:
            while waiting or self.in_queue():
                if self.now_s > PATIENCE_S:
                    raise Failed(
                        f"the trainings have not ended within {PATIENCE_S:g} s", hint=f"logs: {self.lab.folder}"
                    )
                self.look()
                if others_from_s == math.inf and (self.now_s > ALONE_AT_MOST_S or self.first_has_grown()):
                    others_from_s = self.now_s
                while waiting and others_from_s + waiting[0].after_s <= self.now_s:
                    self.submit(waiting.pop(0))
                show(self.picture())
                time.sleep(1.0)

    def accuracies(self) -> dict[str, float]:
        """What each training wrote last."""
        reached = {}
        for job_id, submission in self.jobs.items():
            (output,) = (self.lab.folder / "home" / submission.user).glob(f"*-{job_id}.out")
            reached[job_id] = _accuracy(output.read_text(errors="replace"), str(output))
        return reached

    def fixed_size(self) -> dict[str, float]:
        """The same scripts with the same seeds, each in one process that nobody moves; two at a time."""
        self.console.print("the same six trainings at a fixed size, for comparison:")
        reached: dict[str, float] = {}
        job_ids = list(self.jobs)
        for pair in zip(job_ids[::2], job_ids[1::2], strict=True):
            running = {job_id: self._alone(self.jobs[job_id]) for job_id in pair}
            for job_id, process in running.items():
                reached[job_id] = _accuracy(process.communicate()[0], f"the training of job {job_id} at a fixed size")
                self.console.print(f"  {len(reached)} of {len(self.jobs)}")
        return reached

    def _alone(self, submission: Submission) -> "subprocess.Popen[str]":
        command = ["python", TEMPLATES / "train" / submission.script, *submission.options]
        return self.lab.popen(
            command, user=submission.user, env={"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True
        )


def _accuracy(text: str, where: str) -> float:
    found = re.findall(r"^accuracy ([0-9.]+)$", text, re.MULTILINE)
    if not found:
        raise Failed(f"no accuracy in {where}", hint=text[-1500:])
    return float(found[-1])


@contextlib.contextmanager
def _screen(console: Console) -> Iterator:
    """One picture that changes on a terminal; elsewhere a line whenever something is different."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda picture: live.update(picture, refresh=True)
        return
    last = [0.0]

    def show(picture: Group) -> None:
        if time.monotonic() - last[0] >= 10.0:
            last[0] = time.monotonic()
            console.print(picture)

    yield show


def verdict(demo: Demo) -> None:
    """Says what was promised and raises if it did not happen."""
    moves = [move for move in demo.moves() if move.outcome is Status.DONE and move.kind != "start"]
    shrunk = [move for move in moves if move.kind == "shrink"]
    grown = [move for move in moves if move.to_nodes > move.from_nodes]
    reached, fixed = demo.accuracies(), demo.fixed_size()
    table = Table("job", "script", "accuracy", "at a fixed size", "nodes (batch)", title="What became of them")
    for job_id, submission in demo.jobs.items():
        sizes = " → ".join(f"{move.to_nodes} ({move.batch})" for move in moves if move.job_id == job_id)
        table.add_row(
            job_id, submission.script, f"{reached[job_id]:.4f}", f"{fixed[job_id]:.4f}", sizes or "never moved"
        )
    demo.console.print(table)
    demo.console.print(f"{len(shrunk)} shrinks in place, {len(grown)} growths, {len(moves)} moves in all")
    worse = [job_id for job_id in reached if reached[job_id] < fixed[job_id] - ACCURACY_NOISE]
    if worse:
        raise Failed(f"job {', '.join(worse)} did not reach the accuracy of a fixed size")
    if not shrunk or not grown:
        raise Failed("nobody was shrunk in place, or nobody was made larger", hint="see `ones why JOBID` above")
    if len({move.batch for move in moves}) < 2:
        raise Failed("nobody got another batch", hint="see `ones why JOBID` above")
    demo.console.print(f"`ones why {grown[0].job_id}` has the reason of the first growth:")
    demo.console.print(demo.why(grown[0]), highlight=False, soft_wrap=True)


def main() -> int:
    """The whole demonstration; everything is taken down again, whatever happens."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    lab = Lab(LabSpec(name="demo", nodes=4, gpus_per_node=1))
    try:
        console.print("a Slurm cluster of 4 nodes, in namespaces of this machine:")
        lab.up(lambda step: console.print(f"  {step}"))
        log = (lab.folder / "log/onesd.log").open("w")
        lab.popen(["onesd"], user="operator", host="head", stdout=log, stderr=log)
        demo = Demo(lab, console)
        demo.await_daemon()
        demo.watch()
        report = lab.run(["ones", "report", "-u", "user1,user2"], user="operator", host="head", timeout_s=120)
        console.print(report.stdout, highlight=False, soft_wrap=True)
        verdict(demo)
    except OnesError as error:
        console.print(Text.assemble(("the demo failed: ", "bold red"), str(error)))
        log_path = lab.folder / "log/onesd.log"
        if log_path.exists():
            console.print(Text(f"the last lines of {log_path}:\n{log_path.read_text()[-3000:]}"))
        return 1
    finally:
        lab.down()
    console.print("the lab is gone; nothing is left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
