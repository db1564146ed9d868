"""`ones-run --join`: what a companion does in its own allocation.

It announces itself in the run folder of its base, starts a step when it is invited, and again for later generations
when its ranks have left. It ends with its base: when the base says so, when its ranks have finished or died, or when
Slurm says that the base no longer runs.
"""

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from ones_slurm.elastic.launch import STALE, Generation, srun_line
from ones_slurm.elastic.lending import Announcement, JoinWord, announce, invitation, withdraw
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder
from ones_slurm.elastic.step import SrunStep, TaskedStep
from ones_slurm.model.settings import Launcher

# Ours: an invitation is followed at once, and a look at one small file costs a file system nothing.
_LOOK_EVERY_S = 0.1
# Ours: the base's wrapper and onesd end a companion at once, so this only has to be soon enough for nodes that were
# forgotten, and rare enough for sites that mind each query.
ASK_EVERY_S = 30.0
_ANSWER_WITHIN_S = 30.0
_TERMINATED_CODE = 143
# What Slurm sets for each job anew.
_SLURMS = ("SLURM_", "SLURMD_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "TMPDIR")


class Companion:
    """`nodes` tells the nodes that it holds (None: nobody can say), `base_lives` whether its base still runs."""

    def __init__(
        self,
        folder: RunFolder,
        job_id: str,
        *,
        nodes: Callable[[], tuple[str, ...] | None],
        ranks_per_node: int,
        start: Callable[[JoinWord], TaskedStep],
        base_lives: Callable[[], bool],
        ask_every_s: float = ASK_EVERY_S,
    ) -> None:
        self._folder, self._job_id, self._nodes, self._ranks_per_node = folder, job_id, nodes, ranks_per_node
        self._start, self._base_lives, self._ask_every_s = start, base_lives, ask_every_s
        self._held: tuple[str, ...] = ()
        self._terminated = False
        self._ask_again_s = 0.0

    def on_term(self, *_: object) -> None:
        """Slurm ends this companion."""
        self._terminated = True

    def run(self) -> int:
        """Until there is nothing more to do here; returns the exit code of the batch script."""
        self._held = self._nodes() or ()
        try:
            return self._serve()
        finally:
            withdraw(self._folder, self._job_id)

    def _serve(self) -> int:
        self._announce()
        followed: int | None = None
        while True:
            word = self._next(followed)
            if isinstance(word, int):
                return word
            followed = word.generation
            code = self._follow(word)
            if code != LEFT_CODE:
                return code
            self._announce()

    def _next(self, followed: int | None) -> JoinWord | int:
        """Waits for an invitation that was not followed yet; the exit code if there will be none."""
        while not self._terminated:
            word = invitation(self._folder, self._job_id)
            if word is not None and not word.nodes:
                return 0
            if word is not None and (followed is None or word.generation > followed):
                return word
            if self._base_is_gone():
                return 0
            time.sleep(_LOOK_EVERY_S)
        return _TERMINATED_CODE

    def _follow(self, word: JoinWord) -> int:
        """One step, to its end. Its ranks end by themselves when the base's do."""
        step = self._start(word)
        step.patient = True  # what a death means is the base's to decide, and it may train on without that rank
        self._announce(running=word.generation)
        told = 0
        while (code := step.poll()) is None:
            if self._terminated or self._base_is_gone():
                step.end()
                return _TERMINATED_CODE
            if len(step.endings) > told:
                told = len(step.endings)
                died = {int(one.rank): one.how for one in step.endings if one.code != LEFT_CODE}
                self._announce(running=word.generation, died=died)
            time.sleep(_LOOK_EVERY_S)
        if code not in (0, LEFT_CODE):
            how = f"{step.cause.how} (task {step.cause.rank} on {step.cause.host})" if step.cause else "see above"
            print(f"ones-run: the step ended with exit code {code}: {how}", file=sys.stderr, flush=True)
        return code

    def _announce(self, running: int | None = None, died: dict[int, str] | None = None) -> None:
        announce(
            self._folder,
            Announcement(
                job_id=self._job_id,
                nodes=self._held,
                ranks_per_node=self._ranks_per_node,
                running=running,
                died=died or {},
            ),
        )

    def _base_is_gone(self) -> bool:
        """Asks Slurm, rarely."""
        now_s = time.monotonic()
        if now_s < self._ask_again_s:
            return False
        self._ask_again_s = now_s + self._ask_every_s
        return not self._base_lives()


def start_step(word: JoinWord, own: Mapping[str, str], launcher: Launcher, rank_starter: pathlib.Path) -> TaskedStep:
    """The ranks that the base wants here: its environment, but what Slurm says is this job's own."""
    generation = Generation(number=word.generation, nodes=word.nodes, ranks_per_node=word.ranks_per_node, batch=0)
    here = {name: value for name, value in own.items() if name.startswith(_SLURMS) and name not in STALE}
    sent = {name: value for name, value in word.env.items() if not name.startswith(_SLURMS)}
    srun, *options = srun_line(generation, launcher, rank_starter, word.command)
    return SrunStep([srun, *([f"--chdir={word.cwd}"] if word.cwd else []), *options], sent | here)


class Base:
    """What Slurm says of the job that this one lends its nodes to."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._first: str | None = None

    def lives(self) -> bool:
        """Whether it still is in the run in which it was first seen; True while nobody can say."""
        said = self._ask()
        if said is None:
            return True
        self._first = self._first or said
        return said != "" and said == self._first

    def _ask(self) -> str | None:
        """Its restart count while it runs, "" when it does not; None when Slurm does not tell."""
        line = ["squeue", "--noheader", "--states=all", f"--jobs={self._job_id}", "--Format=State:30,RestartCnt:20"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return "" if "Invalid job id" in done.stderr else None
        state, _, restarts = done.stdout.strip().partition(" ")
        return restarts.strip() if state in ("RUNNING", "SUSPENDED", "RESIZING") else ""
