"""The board between the jobs' door (the HTTP API) and the live cluster: what each job last said, and what it shall do.

Both sides are level-triggered, so a lost or repeated message changes nothing. Any thread may call any method; a
listener costs one callable, so thousands of long polls are fine.
"""

import threading
from collections.abc import Callable, Collection

import msgspec

from ones_slurm.model.wire import Loan, Order, Phase, Sync
from ones_slurm.slurm.loan_book import LoanBook


class Word(msgspec.Struct, frozen=True):
    """The last that a job said, and when it was heard (Unix seconds)."""

    sync: Sync
    heard_s: float


class Board:
    """`put` and `order` are the jobs' side, `word`, `post` and `wait_for_news` the cluster's.

    `loans` are the companions that jobs or agents are asked to submit.
    """

    def __init__(self) -> None:
        self.loans = LoanBook()
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._fresh: set[str] = set()
        self._words: dict[str, Word] = {}
        self._orders: dict[str, Order] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def put(self, job_id: str, sync: Sync, now_s: float) -> None:
        """Keeps what a job says; wakes the cluster when it says something new of its phase, generation or start."""
        with self._lock:
            before = self._words.get(job_id)
            self._words[job_id] = Word(sync, now_s)
            if before is None or _matters(before.sync, sync):
                self._fresh.add(job_id)
                self._news.notify_all()

    def order(self, job_id: str) -> Order | None:
        """The standing order of a job."""
        with self._lock:
            return self._orders.get(job_id)

    def unfollowed(self, job_id: str) -> Order | None:
        """The standing order if the job's last word does not show that it follows it: to be answered at once."""
        with self._lock:
            order, word = self._orders.get(job_id), self._words.get(job_id)
        return order if order is not None and (word is None or not follows(word.sync, order)) else None

    def listen(self, job_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` (from any thread) whenever the job's order changes; returns the way to stop that.

        In asyncio: `stop = board.listen(job_id, lambda: loop.call_soon_threadsafe(event.set))`.
        """
        with self._lock:
            self._listeners.setdefault(job_id, []).append(wake)

        def stop() -> None:
            with self._lock:
                listeners = self._listeners.get(job_id, [])
                if wake in listeners:
                    listeners.remove(wake)
                if not listeners:
                    self._listeners.pop(job_id, None)

        return stop

    def word(self, job_id: str) -> Word | None:
        """The last that a job said since this daemon started."""
        with self._lock:
            return self._words.get(job_id)

    def words(self) -> dict[str, Word]:
        """The last word of every job."""
        with self._lock:
            return dict(self._words)

    def post(self, job_id: str, order: Order | None) -> None:
        """Sets or withdraws the standing order of a job, and wakes its long polls if that is a change."""
        with self._lock:
            if self._orders.get(job_id) == order:
                return
            if order is None:
                del self._orders[job_id]
            else:
                self._orders[job_id] = order
            listeners = tuple(self._listeners.get(job_id, ()))
        for wake in listeners:
            wake()

    def ask_for(self, user: str, loan: Loan) -> None:
        """Wants a companion for a job, and wakes the job's long polls."""
        self.loans.ask(user, loan)
        with self._lock:
            listeners = tuple(self._listeners.get(loan.job_id, ()))
        for wake in listeners:
            wake()

    def stir(self, job_id: str) -> None:
        """Has the cluster look at a job at once, for something else than its own word."""
        with self._lock:
            self._fresh.add(job_id)
            self._news.notify_all()

    def wait_for_news(self, timeout_s: float) -> set[str]:
        """The jobs that said something new since the last call; waits up to `timeout_s` for the first."""
        with self._news:
            if not self._fresh and timeout_s > 0:
                self._news.wait(timeout_s)
            fresh, self._fresh = self._fresh, set()
            return fresh

    def forget_all_but(self, alive: Collection[str], before_s: float) -> None:
        """Drops jobs that are not among `alive` and were last heard before `before_s` (a newborn may not be listed)."""
        with self._lock:
            gone = [job for job, word in self._words.items() if job not in alive and word.heard_s < before_s]
            for job_id in gone:
                del self._words[job_id]
            for job_id in self._orders.keys() - self._words.keys() - set(alive):
                del self._orders[job_id]


def follows(sync: Sync, order: Order) -> bool:
    """Whether a job does what it was ordered: it stops or has stopped for it, entered the generation, or declined."""
    if sync.declined is not None and sync.declined.generation == order.generation:
        return True
    at_it = sync.generation == order.generation
    if order.go:
        return at_it and sync.phase in (Phase.STARTING, Phase.TRAINING)
    return sync.phase is Phase.LEAVING or (at_it and sync.phase is Phase.LEFT)


def _matters(before: Sync, now: Sync) -> bool:
    """Whether a change is worth a look at once: everything but more progress, save the first measurement."""
    first_measured = not speed(before) and speed(now) > 0
    parts = ("phase", "generation", "restarts", "declined", "nodes", "live", "companions")
    return first_measured or any(getattr(before, part) != getattr(now, part) for part in parts)


def speed(sync: Sync) -> float:
    """Samples per second, by the job's own word; 0 before the first measurement."""
    return sync.progress.samples_per_s if sync.progress is not None else 0.0
