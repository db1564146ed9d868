"""Submits companions where the site wants it done by the job itself, or by its user's agent on a login node.

The daemon repeats its request until a companion shows in the queue. So each request is looked up there by its name
before it is submitted, once, and what Slurm said is remembered and told again.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ones_slurm.model.companion import companion_name, sbatch_line
from ones_slurm.model.wire import Loan, LoanAnswer

# Ours: Slurm's own commands give up after some tens of seconds.
_ANSWER_WITHIN_S = 60.0


class Daemon(Protocol):
    """`ones_slurm.peer.client.Client`, as far as it is used here."""

    def answer(self, job_id: str, answer: LoanAnswer) -> None: ...


class Run(Protocol):
    """Runs a command to its end; a test hands in its own."""

    def __call__(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]": ...


class Submitter:
    """`join_of` is the command that a companion for this request runs."""

    def __init__(self, daemon: Daemon, join_of: Callable[[Loan], Sequence[str]], run: Run | None = None) -> None:
        self._daemon, self._join_of, self._run = daemon, join_of, run or _run
        self._answers: dict[str, LoanAnswer] = {}

    def serve(self, loan: Loan) -> None:
        """Submits what is wanted unless that was done, and says how it went. Raises as the daemon's client does.

        An outcome that nobody knows (a time-out, say) is not told: the request comes again, and the queue will show.
        """
        name = companion_name(loan.job_id, loan.restarts, loan.generation)
        if name not in self._answers:
            answer = self._submit(name, loan)
            if answer is None:
                return
            self._answers = {name: answer}
            said = f"refused: {answer.refused}" if answer.refused else f"submitted as job {answer.job_id}"
            print(f"ones: companion of job {loan.job_id}, {loan.nodes} nodes, {said}", file=sys.stderr, flush=True)
        self._daemon.answer(loan.job_id, self._answers[name])

    def _submit(self, name: str, loan: Loan) -> LoanAnswer | None:
        try:
            queue = self._run(["squeue", "--me", "--noheader", f"--name={name}", "--format=%A"])
            if queue.returncode != 0:
                return None
            if there := queue.stdout.split():
                return _answer(loan, job_id=there[0])
            done = self._run(sbatch_line(loan, self._join_of(loan)))
        except subprocess.TimeoutExpired:
            return None
        except OSError as error:
            return _answer(loan, refused=str(error))
        if done.returncode != 0:
            said = " ".join(done.stderr.split()) or f"sbatch ended with {done.returncode}"
            return None if "timed out" in said.lower() else _answer(loan, refused=said)
        return _answer(loan, job_id=done.stdout.split()[-1].partition(";")[0])


def _answer(loan: Loan, *, job_id: str = "", refused: str = "") -> LoanAnswer:
    return LoanAnswer(restarts=loan.restarts, generation=loan.generation, job_id=job_id, refused=refused[:1024])


def outside(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Slurm says of this very job, for it would be believed in the next one."""
    return {name: value for name, value in env.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        env=outside(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_ANSWER_WITHIN_S,
        check=False,
    )
