"""A rank's second thread: it says that this process lives, and hears when the world is no longer whole."""

import contextlib
import threading
import time
from collections.abc import Callable

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ones_slurm.elastic.formation import PARTED, newest
from ones_slurm.elastic.store import open_store

# Ours: a death that the wrapper has seen reaches a blocked rank within this time; five store operations a second.
_LOOK_EVERY_S = 0.2
_BEAT_EVERY_S = 0.5


class Pulse:
    """`broken` is set once a formation was published that nobody agreed on: then `hang_up` is called as well."""

    def __init__(self, store: TCPStore, name: str, hang_up: Callable[[], None]) -> None:
        self.broken = threading.Event()
        # A connection of its own: one that waits for its answer keeps all others who share it waiting.
        self._store, self._name, self._hang_up = open_store(store.host, store.port), name, hang_up
        self._entered = -1
        self._seen = -1
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._store.add(f"beat/{name}", 1)
        self._thread = threading.Thread(target=self._run, name="ones-pulse", daemon=True)
        self._thread.start()

    def entering(self, number: int) -> None:
        """This rank is about to form the group of this formation: what broke before no longer matters."""
        with self._lock:
            self._entered = number
            if self._seen <= number:
                self.broken.clear()

    def stop(self) -> None:
        """This rank has nothing more to do with the world; nobody need wonder at its silence."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(1.0)
        with contextlib.suppress(RuntimeError):
            self._store.set(f"beat/{self._name}", str(PARTED))

    def _run(self) -> None:
        beat_s = 0.0
        with contextlib.suppress(RuntimeError):  # the store is gone, and with it ones-run: the main thread will see
            while not self._ended.wait(_LOOK_EVERY_S):
                if time.monotonic() - beat_s >= _BEAT_EVERY_S:
                    beat_s = time.monotonic()
                    self._store.add(f"beat/{self._name}", 1)
                self._look()

    def _look(self) -> None:
        found = newest(self._store, self._seen + 1)
        with self._lock:
            if found is None:
                return
            self._seen = found.number
            if found.agreed or found.number <= self._entered:
                return
            self.broken.set()
            self._hang_up()
