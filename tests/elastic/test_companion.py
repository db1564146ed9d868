"""A companion in its own allocation, and who submits it; the base's side is told from here."""

import os
import pathlib
import subprocess
import threading
import time

import pytest

from ones_slurm.elastic.companion import Base, Companion, start_step
from ones_slurm.elastic.lending import JoinWord, announced, dismiss, forget, invitation, invite, join_command
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder
from ones_slurm.elastic.step import Cause
from ones_slurm.elastic.submitter import Submitter, outside
from ones_slurm.model.settings import Launcher
from ones_slurm.model.wire import Loan, LoanAnswer


class FakeStep:
    """Ranks that end when the test says so."""

    direct = True

    def __init__(self, word: JoinWord) -> None:
        self.word, self.code, self.cause, self.ended = word, None, None, False
        self.endings, self.patient = [], False

    def poll(self) -> int | None:
        return self.code

    def end(self) -> int:
        self.ended = True
        return 143


class Serving:
    """A companion with two nodes that serves in a thread."""

    def __init__(self, folder: RunFolder, *, base_lives=lambda: True) -> None:
        self.folder = folder
        self.steps: list[FakeStep] = []
        self.companion = Companion(
            folder,
            "77",
            nodes=lambda: ("c2", "c3"),
            ranks_per_node=2,
            start=self.start,
            base_lives=base_lives,
            ask_every_s=0.0,
        )
        self.code: int | None = None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        self.code = self.companion.run()

    def start(self, word: JoinWord) -> FakeStep:
        self.steps.append(FakeStep(word))
        return self.steps[-1]

    @property
    def word(self):
        return next(iter(announced(self.folder)), None)

    def ended(self) -> int | None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.code


def until(fact):
    deadline = time.monotonic() + 180
    while not fact():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def join(generation: int, **more) -> JoinWord:
    return JoinWord(generation=generation, nodes=("c2", "c3"), ranks_per_node=2, command=("train",), **more)


def test_it_announces_itself_is_invited_leaves_and_is_invited_again(folder):
    serving = Serving(folder)
    until(lambda: serving.word)
    assert (serving.word.nodes, serving.word.ranks_per_node, serving.word.running) == (("c2", "c3"), 2, None)
    invite(folder, "77", join(5))
    until(lambda: serving.word.running == 5)
    serving.steps[0].code = LEFT_CODE
    until(lambda: serving.word.running is None)
    time.sleep(0.3)
    assert len(serving.steps) == 1, "an invitation is followed once"
    invite(folder, "77", join(8))
    until(lambda: serving.word.running == 8)
    serving.steps[1].code = 0
    assert serving.ended() == 0
    assert announced(folder) == []
    assert invitation(folder, "77") is None


def test_a_rank_that_dies_is_told_at_once_and_its_code_is_the_companions(folder):
    serving = Serving(folder)
    invite(folder, "77", join(5))
    until(lambda: serving.steps)
    serving.steps[0].endings = [Cause("2", "c3", f"Exited with exit code {LEFT_CODE}"), Cause("3", "c3", "Killed")]
    until(lambda: serving.word.died == {3: "Killed"})
    serving.steps[0].code = 137
    assert serving.ended() == 137


def test_it_ends_with_its_base_which_says_so_or_is_gone(folder):
    told = Serving(folder)
    until(lambda: told.word)
    invite(folder, "77", JoinWord(generation=0))
    assert told.ended() == 0
    alone = Serving(folder, base_lives=lambda: False)
    assert alone.ended() == 0


def test_ranks_are_ended_when_the_base_is_gone_or_slurm_says_so(folder):
    lives = [True]
    serving = Serving(folder, base_lives=lambda: lives[0])
    invite(folder, "77", join(5))
    until(lambda: serving.steps)
    lives[0] = False
    assert serving.ended() == 143
    assert serving.steps[0].ended
    invite(folder, "77", join(6))
    other = Serving(folder)
    until(lambda: other.steps)
    other.companion.on_term()
    assert other.ended() == 143


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """Puts small programs on PATH that write down how they were called; `say` is what one prints and returns."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    log = tmp_path / "called"
    log.touch()

    def say(name: str, printed: str = "", error: str = "", code: int = 0) -> None:
        path = place / name
        path.write_text(
            f"#!/bin/sh\nprintf '%s\\n' '{name}' \"$@\" >> {log}\nenv | grep ^SLURM_ >> {log}\n"
            f"printf '%s' '{printed}'\nprintf '%s' '{error}' >&2\nexit {code}\n"
        )
        path.chmod(0o755)

    say.called = log.read_text
    return say


def test_a_base_is_gone_when_it_does_not_run_or_began_anew(on_path):
    on_path("squeue", "RUNNING                       0                   \n")
    base = Base("12")
    assert base.lives()
    on_path("squeue", error="slurm_load_jobs error: Unable to contact slurm controller", code=1)
    assert base.lives(), "nobody can say"
    on_path("squeue", "RUNNING                       1                   \n")
    assert not base.lives()
    on_path("squeue", "PENDING                       1                   \n")
    assert not base.lives()
    on_path("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    assert not base.lives()


def test_ranks_get_the_bases_environment_and_the_companions_own_slurm(tmp_path, on_path):
    on_path("srun")
    word = join(5, env={"USERS_OWN": "1", "SLURM_JOB_ID": "12", "PATH": os.environ["PATH"]}, cwd="/base/place")
    own = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "9", "PATH": "/nowhere", "CUDA_VISIBLE_DEVICES": "0,1"}
    step = start_step(word, own, Launcher(), pathlib.Path("/opt/ones-rank"))
    until(lambda: step.poll() is not None)
    called = on_path.called().splitlines()
    for option in ("--nodes=2", "--ntasks=4", "--nodelist=c2,c3", "--chdir=/base/place", "--no-kill", "train"):
        assert option in called
    assert "SLURM_JOB_ID=77" in called
    assert not any(line.startswith("SLURM_NTASKS") for line in called)


LOAN = Loan(job_id="12", restarts=0, generation=5, nodes=2, minutes=30, folder="/home/u/run")


class Told:
    def __init__(self) -> None:
        self.answers: list[LoanAnswer] = []

    def answer(self, job_id: str, answer: LoanAnswer) -> None:
        assert job_id == "12"
        self.answers.append(answer)


def test_a_companion_is_submitted_once_however_often_it_is_asked_for(on_path, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "64")
    on_path("squeue")
    on_path("sbatch", "78;cluster\n")
    told = Told()
    submitter = Submitter(told, lambda loan: ("ones-run", "--join", loan.job_id))
    submitter.serve(LOAN)
    submitter.serve(LOAN)
    assert told.answers == [LoanAnswer(restarts=0, generation=5, job_id="78")] * 2
    called = on_path.called().splitlines()
    assert called.count("sbatch") == 1
    assert "--nodes=2" in called
    assert not any(line.startswith("SLURM_") for line in called), "what Slurm says of this job is not that one's"


def test_one_that_is_in_the_queue_already_is_not_submitted_again(on_path):
    on_path("squeue", "78\n")
    on_path("sbatch", "79\n")
    told = Told()
    Submitter(told, lambda _: ("ones-run",)).serve(LOAN)
    assert told.answers == [LoanAnswer(restarts=0, generation=5, job_id="78")]
    assert "sbatch" not in on_path.called().splitlines()


def test_a_refusal_is_told_in_slurms_words_and_an_unknown_outcome_is_not(on_path):
    on_path("squeue")
    on_path("sbatch", error="sbatch: error: Access/permission denied", code=1)
    told = Told()
    submitter = Submitter(told, lambda _: ("ones-run",))
    submitter.serve(LOAN)
    assert told.answers[0].refused == "sbatch: error: Access/permission denied"
    on_path("sbatch", error="sbatch: error: Batch job submission failed: Socket timed out", code=1)
    silent = Told()
    Submitter(silent, lambda _: ("ones-run",)).serve(LOAN)
    assert silent.answers == []
    on_path("squeue", error="Unable to contact slurm controller", code=1)
    Submitter(silent, lambda _: ("ones-run",)).serve(LOAN)
    assert silent.answers == []


def test_a_base_that_ends_dismisses_all_its_companions(folder, on_path):
    on_path("scancel")
    dismiss(folder)
    assert "scancel" not in on_path.called()
    serving = Serving(folder)
    until(lambda: serving.word)
    dismiss(folder)
    assert serving.ended() == 0
    assert on_path.called().split()[:2] == ["scancel", "77"]


def test_a_base_that_begins_anew_forgets_the_companions_of_its_earlier_run(folder):
    forget(folder)
    serving = Serving(folder)
    until(lambda: serving.word)
    forget(folder)
    assert announced(folder) == []
    serving.companion.on_term()
    serving.ended()


def test_a_folder_of_somebody_else_is_not_entered(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    done = subprocess.run(
        [*join_command("wrappers/ones-run", "12", RunFolder(link), None)],
        env={**outside(os.environ), "SLURM_JOB_ID": "77"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "is a link or a file" in done.stderr


def test_a_companion_needs_a_job_and_a_folder(tmp_path):
    done = subprocess.run(
        [*join_command("wrappers/ones-run", "12", RunFolder(tmp_path), None)],
        env=outside(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "--join needs a Slurm job to lend" in done.stderr) == (2, True)
