"""What must hold whatever happens: looked at throughout, and once more when all is over."""

import json
import time

from ground import Ground
from stream import Stream, faults_of

# Ours: the lab's own time-outs for a leave and a start (60 s each), a dead node's (30 s), and an overloaded machine.
IDLE_S = 240.0
# A job that is over and still runs for Slurm is not mended before this time.
OVER_S = 60.0
# After the last fault: what a node needs to come back, and a move to end.
SETTLES_WITHIN_S = 180.0
UNFINISHED = ("RUNNING", "PENDING")


class Watch:
    """Collects violations; each is a sentence."""

    def __init__(self, ground: Ground, stream: Stream) -> None:
        self._ground, self.stream = ground, stream
        self._idle_since: dict[str, tuple[int, float]] = {}
        self._held_since: dict[str, float] = {}
        self._why = ""
        self.mended: list[str] = []
        self.violations: list[str] = []

    def look(self, killed: set[str]) -> None:
        """Throughout. Trainings in `killed` may have ended; they are submitted anew."""
        if not self.stream.look():
            return
        now_s = time.monotonic()
        for training in self.stream.trainings:
            if training.state in ("COMPLETED", "PENDING"):
                self._idle_since.pop(training.name, None)
                if training.state == "COMPLETED":
                    killed.discard(training.name)  # it was over before it was hit
            elif training.over:
                if training.name in killed:
                    if self.stream.resubmit(training):
                        killed.discard(training.name)
                elif not self._said(f"{training.name} is lost"):
                    what = f"{training.name} is lost: job {training.job_id} ended as {training.state}"
                    self._violated(f"{what}\n{self._tail(training.name)}")
            else:
                steps = len(training.steps())
                before, since_s = self._idle_since.get(training.name, (-1, now_s))
                if steps != before:
                    self._idle_since[training.name] = (steps, now_s)
                elif now_s - since_s > OVER_S and training.finished():
                    self._mend(f"job {training.job_id}: over, and running for Slurm", "requeue", training.job_id)
                    self._idle_since[training.name] = (steps, now_s)
                elif now_s - since_s > IDLE_S and not self._said(f"{training.name} holds"):
                    self._violated(f"{training.name} holds its nodes and has not trained for {IDLE_S:g} s")
        self._look_for_held(now_s)
        self._mend_what_slurm_did()

    def _look_for_held(self, now_s: float) -> None:
        said = self._ground.as_root("squeue", "-h", "-o", "%i %r", check=False)
        held = {line.split()[0] for line in said.splitlines() if "held" in line.lower()}
        self._held_since = {job_id: self._held_since.get(job_id, now_s) for job_id in held}
        for job_id, since_s in self._held_since.items():
            if now_s - since_s > IDLE_S and not self._said(f"job {job_id} was left held"):
                self._violated(f"job {job_id} was left held for {IDLE_S:g} s")

    def _mend_what_slurm_did(self) -> None:
        """As an administrator does when slurmctld was killed within seconds of starting a job: it has forgotten that,
        starts the job anew where it still runs, drains that node and holds the job. No co-scheduler has a part in it.
        Nor has one when it has forgotten a job's end (`look`).
        """
        for line in self._ground.as_root("squeue", "-h", "-o", "%i %r", check=False).splitlines():
            job_id, _, reason = line.partition(" ")
            if reason == "launch failed requeued held":
                self._mend(f"job {job_id}: {reason}", "release", job_id)
        for line in self._ground.as_root("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %E", check=False).splitlines():
            node, _, reason = line.partition(" ")
            if reason == "Duplicate jobid":
                self._mend(f"node {node}: {reason}", "update", f"nodename={node}", "state=resume")

    def _mend(self, what: str, *scontrol: str) -> None:
        self._ground.as_root("scontrol", *scontrol, check=False)
        self.mended.append(what)

    def end(self) -> None:
        """When every training is over: the logs, the nodes, the journal and the accounting."""
        for training in self.stream.trainings:
            self.violations += faults_of(training)
        try:
            self._ground.until(self._nodes_are_well, "every node is idle again", SETTLES_WITHIN_S)
            self._ground.until(self._nothing_is_open, "no move is open", SETTLES_WITHIN_S)
            self._ground.until(self._accounting_adds_up, "accounting adds up", SETTLES_WITHIN_S)
        except AssertionError as error:
            self._violated(str(error).partition("\n---")[0] + f" ({self._why})")
        found = self._ground.journal()
        if found["ticks"] == 0 or found["difference"] != "''":
            self._violated(f"the journal's {found['ticks']} ticks do not replay: {found['difference']}")

    def _nodes_are_well(self) -> bool:
        self._why = self._ground.as_root("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T %E", check=False)
        lines = [line.split() for line in self._why.splitlines()]
        return bool(lines) and all(line[1] == "idle" for line in lines)

    def _nothing_is_open(self) -> bool:
        unfinished = self._ground.journal()["unfinished"]
        self._why = f"open: {unfinished}"
        return not unfinished

    def _accounting_adds_up(self) -> bool:
        """Each job has ended, its runs follow each other, and our report counts the GPU time that Slurm counts."""
        ids = ",".join(job_id for training in self.stream.trainings for job_id in training.jobs)
        fields = "JobID,State,Start,End,ElapsedRaw,AllocTRES"
        argv = ("sacct", "-D", "-X", "-n", "-P", "-S", "now-1day", "-j", ids, "-o", fields)
        rows = [line.split("|") for line in self._ground.as_root(*argv, check=False).splitlines()]
        if open_ := [row for row in rows if row[1].split()[0] in UNFINISHED or row[3] == "Unknown"]:
            self._why = f"rows without an end: {open_[:3]}"
            return False
        last = {}
        for row in rows:
            if row[0] in last and row[2] not in ("Unknown", "None") and row[2] < last[row[0]]:
                self._why = f"job {row[0]} began at {row[2]}, before its last run ended at {last[row[0]]}"
                return False
            last[row[0]] = row[3]
        slurm_s = sum(int(row[4]) * gpus(row[5]) for row in rows)
        said = self._ground.ones("report", "-j", ids, "--json")
        try:
            totals = json.loads(said.stdout)["totals"]
        except (ValueError, KeyError) as error:
            self._why = f"the report cannot be read: {error!r} {said.stderr[-300:]}"
            return False
        ours_s = totals["gpu_s"]
        self._why = f"Slurm counts {slurm_s} GPU seconds, the report {ours_s}"
        return abs(slurm_s - ours_s) <= max(0.01 * slurm_s, 4.0)

    def _violated(self, what: str) -> None:
        print(f"VIOLATED {what}", flush=True)
        self.violations.append(what)

    def _said(self, beginning: str) -> bool:
        return any(what.startswith(beginning) for what in self.violations)

    def _tail(self, name: str) -> str:
        output = self.stream.folder / f"{name}.out"
        return output.read_text(errors="replace")[-800:] if output.exists() else ""


def gpus(tres: str) -> int:
    """How many an AllocTRES field names."""
    return next((int(part.removeprefix("gres/gpu=")) for part in tres.split(",") if part.startswith("gres/gpu=")), 0)
