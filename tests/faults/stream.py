"""A stream of small elastic trainings, and what became of each: its steps, what was lost, what was done twice."""

import itertools
import pathlib
import random
import time

import msgspec
from ground import Ground

from ones_slurm.elastic.runfolder import RunFolder, Word

HERE = pathlib.Path(__file__).parent
CHECKPOINT_EVERY_S = 5.0
SAMPLES = (6_000, 16_000)
# A step that takes longer than this was held up: that is a pause, not work.
LONGEST_STEP_S = 1.0
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")


class Step(msgspec.Struct, frozen=True):
    """A line of an emulated training's log."""

    at_s: float
    run: str
    step: int
    samples: int
    batch: int


class Loss(msgspec.Struct, frozen=True):
    """Work that was done and had to be done again."""

    training: str
    broke_s: float
    steps: int
    work_s: float


class Training:
    """One training, over all the jobs that it took. `job_id` is the latest of them."""

    def __init__(self, name: str, job_id: str, total_samples: int, folder: pathlib.Path) -> None:
        self.name, self.job_id, self.total_samples, self.folder = name, job_id, total_samples, folder
        self.jobs = [job_id]
        self.state = "PENDING"

    @property
    def over(self) -> bool:
        return self.state in ENDED

    def word(self) -> Word | None:
        """What rank 0 said last."""
        return RunFolder(self.folder / "runs" / self.name).read_word()

    def finished(self) -> bool:
        """Whether rank 0 has said so."""
        word = self.word()
        return word is not None and word.finished

    def steps(self) -> list[Step]:
        """All steps that were told, in the order in which they were."""
        try:
            lines = (self.folder / f"{self.name}.told").read_text().splitlines()
        except FileNotFoundError:
            return []
        fields = (line.split() for line in lines)
        return [Step(float(at), run, int(step), int(samples), int(batch)) for at, run, step, samples, batch in fields]


def losses(training: str, steps: list[Step]) -> list[Loss]:
    """Each time that a training went back, how much of its work it did again."""
    found = []
    for at, (before, after) in enumerate(itertools.pairwise(steps)):
        if after.step <= before.step:
            latest = {step.step: step.at_s for step in steps[: at + 1]}
            times = [latest[number] for number in range(max(after.step - 1, 1), before.step + 1) if number in latest]
            work_s = sum(min(abs(later - earlier), LONGEST_STEP_S) for earlier, later in itertools.pairwise(times))
            found.append(Loss(training, before.at_s, before.step - after.step + 1, work_s))
    return found


def faults_of(training: Training) -> list[str]:
    """What must never be in the log of a training, whatever happened."""
    steps, wrong = training.steps(), []
    runs: list[str] = []
    for step in steps:
        if not runs or runs[-1] != step.run:
            if step.run in runs:
                wrong.append(f"{training.name}: {runs[-1]} and {step.run} trained at the same time")
            runs.append(step.run)
    last: dict[int, Step] = {}
    reached = 0
    for step in steps:
        if step.step > reached + 1:
            wrong.append(f"{training.name}: steps {reached + 1} to {step.step - 1} were left out")
        reached = step.step
        last[step.step] = step
    before = 0
    for number in range(1, len(last) + 1):
        if number in last and last[number].samples != before + last[number].batch:
            wrong.append(f"{training.name}: step {number} ends at sample {last[number].samples}, not after {before}")
        before = last[number].samples if number in last else before
    if training.state == "COMPLETED" and not training.total_samples <= before < training.total_samples + 4096:
        wrong.append(f"{training.name}: is complete with {before} of {training.total_samples} samples")
    return wrong


class Stream:
    """Keeps `most` trainings in the queue for as long as it is open."""

    def __init__(self, ground: Ground, seed: int, most: int, widest: int) -> None:
        self._ground, self._rng, self._most, self._widest = ground, random.Random(f"stream {seed}"), most, widest
        self.trainings: list[Training] = []
        self.open = True
        self.submitted_s = 0.0

    @property
    def folder(self) -> pathlib.Path:
        return self._ground.lab.folder / "home/user1"

    def unfinished(self) -> list[Training]:
        return [training for training in self.trainings if not training.over]

    def running(self) -> list[Training]:
        return [training for training in self.trainings if training.state == "RUNNING"]

    def all_have_begun(self) -> bool:
        """Whether each unfinished training has been in its run folder."""
        self.look()
        return all((self.folder / "runs" / one.name / "site.toml").exists() for one in self.unfinished())

    def feed(self) -> None:
        """Submits what is missing; not while Slurm does not answer."""
        while self.open and len(self.unfinished()) < self._most:
            name, total_samples = f"t{len(self.trainings)}", self._rng.randrange(*SAMPLES)
            nodes = self._rng.randint(1, self._widest)
            job_id = self._submit(name, total_samples, nodes)
            if job_id is None:
                return
            self.trainings.append(Training(name, job_id, total_samples, self.folder))

    def resubmit(self, training: Training) -> bool:
        """As a person would whose job was killed: once more, with the same run folder."""
        job_id = self._submit(training.name, training.total_samples, 1)
        if job_id is not None:
            training.job_id, training.state = job_id, "PENDING"
            training.jobs.append(job_id)
        return job_id is not None

    def look(self) -> bool:
        """Learns from Slurm how the jobs are; False when it does not answer."""
        said = self._ground.lab.run(
            ["squeue", "-h", "-t", "all", "-o", "%i %T"], user="root", host="head", cwd="/", check=False
        )
        if said.returncode != 0:
            return False
        states = dict(line.split() for line in said.stdout.splitlines())
        for training in self.unfinished():
            training.state = states.get(training.job_id, training.state)
        return True

    def _submit(self, name: str, total_samples: int, nodes: int) -> str | None:
        home = "/home/user1"
        line = f"python {HERE}/emulated.py {home}/{name}.told {total_samples}"
        done = self._ground.lab.run(
            [
                *("sbatch", "--parsable", f"--job-name={name}", f"--comment=ones:nodes=1-{self._widest},batch=64-256"),
                *(f"--nodes={nodes}", "--gres=gpu:4", "--requeue", "--open-mode=append", "--time=30"),
                f"--output={home}/{name}.out",
                f"--wrap=exec ones-run --checkpoint-every {CHECKPOINT_EVERY_S:g} --ranks-per-node 1 "
                f"--dir {home}/runs/{name} -- {line}",
            ],
            env={"PYTHONPATH": f"{HERE}/without_torch:{HERE.parents[1]}"},
            check=False,
        )
        self.submitted_s = time.monotonic()
        return done.stdout.strip() if done.returncode == 0 else None
