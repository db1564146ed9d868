"""The wrapper's line to `onesd`: it tells how the job stands and hears the standing order, and nothing waits for it.

Two threads use it: one holds a long poll open, so that an order arrives when it is given, the other sends news at
once. Both carry the whole truth, so it does not matter which is answered first. A daemon that is away costs one
warning; the job trains on.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ones_slurm.model.errors import OnesError, Unreachable
from ones_slurm.model.wire import Loan, Order, Phase, Reply, Sync

# Ours: the daemon hears of progress at least this often. Below the 30 s that it holds a request open at most.
_POLL_S = 10.0
# Ours: the policy knows nothing of a new size before its first measurement, so that is told soon.
_UNMEASURED_S = 2.0
# Ours: two requests a second while an order is being followed.
_BREATH_S = 0.5
# Ours: onesd answers a job that comes up within a second, unless Slurm is slow; to start twice would cost more.
_FIRST_ORDER_S = 15.0
_AWAY_FIRST_S, _AWAY_MOST_S = 1.0, 30.0


class Client(Protocol):
    """`ones_slurm.peer.client.Client`, as far as it is used here."""

    def sync(self, job_id: str, sync: Sync, wait_s: float = 0.0) -> Reply: ...


class Link:
    """`order` is the daemon's latest word and `heard_in` the phase that it answered; both None until it spoke.

    `submit` is called, in a thread of its own, with the companion that this job shall submit.
    """

    def __init__(
        self,
        client: Client | None,
        job_id: str,
        describe: Callable[[], Sync],
        submit: Callable[[Loan], None] = lambda _: None,
    ) -> None:
        self._client, self._job_id, self._describe, self._submit = client, job_id, describe, submit
        self._submitting = threading.Lock()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._closed = threading.Event()
        self._warned = False
        self.order: Order | None = None
        self.heard_in: Phase | None = None

    def ask(self) -> bool:
        """Tells that the job has come up and waits for its first order, not for long; whether the daemon answered."""
        return self._sync(_FIRST_ORDER_S)

    def start(self) -> None:
        """Begins to listen in the background."""
        if self._client is not None:
            for work in (self._listen, self._tell):
                threading.Thread(target=work, name=f"onesd{work.__name__}", daemon=True).start()

    def tell(self) -> None:
        """There is news; it is sent in the background. What was heard before no longer answers the job's state."""
        with self._lock:
            self.heard_in = None
        self._news.set()

    def close(self) -> None:
        """Sends the last word and stops listening."""
        self._closed.set()
        self._news.set()
        self._sync(0.0)

    def latest(self) -> tuple[Order | None, Phase | None]:
        """The standing order, and in which phase it was given; (None, None) before the daemon has answered."""
        with self._lock:
            return self.order, self.heard_in

    def _listen(self) -> None:
        away_s = _AWAY_FIRST_S
        while not self._closed.is_set():
            began_s = time.monotonic()
            if self._sync(_POLL_S if self._measured() else _UNMEASURED_S):
                away_s = _AWAY_FIRST_S
                self._closed.wait(max(0.0, _BREATH_S - (time.monotonic() - began_s)))
            else:
                self._closed.wait(away_s)
                away_s = min(2 * away_s, _AWAY_MOST_S)

    def _tell(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            self._news.clear()
            if not self._closed.is_set():
                self._sync(0.0)

    def _measured(self) -> bool:
        """Whether there is no first measurement to wait for."""
        now = self._describe()
        return now.phase is not Phase.TRAINING or now.progress is None or now.progress.samples_per_s > 0.0

    def _sync(self, wait_s: float) -> bool:
        if self._client is None:
            return False
        sync = self._describe()
        try:
            reply = self._client.sync(self._job_id, sync, wait_s)
        except OnesError as error:
            if not self._warned:
                self._warned = True
                away = (
                    "the job keeps its size meanwhile" if isinstance(error, Unreachable) else "the job keeps its size"
                )
                print(f"ones-run: {error}\n  {away}", file=sys.stderr, flush=True)
            return False
        if reply.loan is not None and self._submitting.acquire(blocking=False):
            threading.Thread(target=self._lend, args=(reply.loan,), name="companion", daemon=True).start()
        with self._lock:
            now = self._describe()
            if (sync.phase, sync.generation) == (now.phase, now.generation):
                self.order, self.heard_in = reply.order, sync.phase
        return True

    def _lend(self, loan: Loan) -> None:
        try:
            self._submit(loan)
        except OnesError as error:
            print(f"ones-run: {error}", file=sys.stderr, flush=True)
        finally:
            self._submitting.release()
