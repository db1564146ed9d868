"""The companions that others shall submit: the job itself, or its user's agent on a login node.

Both sides are level-triggered, as the board is: a request stands until it is withdrawn, and whoever submits looks into
the queue first, so nothing is submitted twice. Any thread may call any method.
"""

import threading

from ones_slurm.model.wire import Loan, LoanAnswer

# Ours: an agent asks every two seconds; one that was not heard for this long is taken for gone.
AGENT_SILENT_AFTER_S = 60.0


class LoanBook:
    """`ask`, `withdraw` and `answer_to` are the cluster's side, the rest that of jobs and agents."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[str, Loan]] = {}
        self._answers: dict[str, LoanAnswer] = {}
        self._agents: dict[str, float] = {}

    def ask(self, user: str, loan: Loan) -> None:
        """A companion is wanted for a job of this user; another request for that job is void."""
        with self._lock:
            self._asked[loan.job_id] = (user, loan)
            self._answers.pop(loan.job_id, None)

    def withdraw(self, job_id: str) -> None:
        """No companion is wanted for this job any more."""
        with self._lock:
            self._asked.pop(job_id, None)
            self._answers.pop(job_id, None)

    def answer_to(self, job_id: str) -> LoanAnswer | None:
        """What became of the request for this job; None as long as nobody has said."""
        with self._lock:
            return self._answers.get(job_id)

    def of_job(self, job_id: str) -> Loan | None:
        """The companion that is wanted for this job."""
        with self._lock:
            return self._asked[job_id][1] if job_id in self._asked else None

    def of_user(self, user: str, now_s: float) -> tuple[Loan, ...]:
        """All that are wanted for this user's jobs; their agent asks, so it is there."""
        with self._lock:
            self._agents[user] = now_s
            return tuple(loan for owner, loan in self._asked.values() if owner == user)

    def answer(self, job_id: str, answer: LoanAnswer) -> None:
        """Whoever was to submit says how it went; an answer to an older request is ignored."""
        with self._lock:
            loan = self._asked[job_id][1] if job_id in self._asked else None
            if loan is not None and (loan.restarts, loan.generation) == (answer.restarts, answer.generation):
                self._answers[job_id] = answer

    def has_agent(self, user: str, now_s: float) -> bool:
        """Whether this user's agent was heard lately."""
        with self._lock:
            return now_s - self._agents.get(user, float("-inf")) < AGENT_SILENT_AFTER_S
