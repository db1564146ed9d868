"""How ranks agree on the step at which they save or leave, without a collective and without a doubt.

Steps come in *windows*. At the end of each, rank 0 publishes what to do now and how long the next window is; the others
read it. The gradient all-reduce keeps ranks within a step of each other, so nobody waits long for the word. One
operation of the store a window is the whole cost, and rank 0 makes windows last about `WINDOW_S`.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Protocol

# Ours: an order is followed within half a second, and four store operations a second cost nothing.
WINDOW_S = 0.25
# Ours: steps of microseconds come in toy problems only, and a window should not outlast a change of pace for long.
MOST_STEPS = 10_000
# Ours: how long rank 0 keeps the store open for ranks that have not read the last word.
_READ_WITHIN_S = 60.0


class Store(Protocol):
    """The part of torch's stores that is used here."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def delete_key(self, key: str) -> bool: ...


class Agreement:
    """One rank's part. `decide` is called on rank 0 only, once a window, and returns a verb: "go" or another."""

    def __init__(
        self,
        store: Store | None,
        rank: int,
        ranks: int,
        decide: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._rank, self._ranks, self._decide, self._clock = store, rank, ranks, decide, clock
        self._window = 0
        self._steps_left = 1
        self._length = 1
        self._entered_s = clock()
        self._messages = 0

    def after_step(self) -> str:
        """What all ranks do after this very step: "go" on, or the verb that rank 0 decided on."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return "go"
        self._window += 1
        key = f"window/{self._window}"
        if self._rank == 0:
            self._length = self._next_length()
            verb = self._decide()
            if self._store is not None:
                self._store.set(key, f"{verb}:{self._length}")
                # Every rank has taken part in a step since it read that one.
                self._forget(f"window/{self._window - 2}")
        else:
            assert self._store is not None
            verb, _, length = self._store.get(key).decode().partition(":")
            self._length = int(length)
        self._steps_left = self._length
        return verb

    def tell(self, word: str) -> str:
        """Rank 0's `word`, on every rank; the others wait for it and ignore their own argument."""
        self._messages += 1
        if self._store is None:
            return word
        key = f"word/{self._messages}"
        if self._rank == 0:
            self._store.set(key, word)
            return word
        return self._store.get(key).decode()

    def gather(self, mine: bytes) -> list[bytes]:
        """On rank 0 what each rank handed in, in order of rank; an empty list on the others, who do not wait."""
        self._messages += 1
        keys = [f"gather/{self._messages}/{rank}" for rank in range(self._ranks)]
        if self._store is None:
            return [mine]
        if self._rank != 0:
            self._store.set(keys[self._rank], mine.hex())
            return []
        return [mine, *(bytes.fromhex(self._take(key)) for key in keys[1:])]

    def part(self) -> None:
        """The last word was read. Rank 0 holds the store, so it waits here until the others have come by."""
        if self._store is None:
            return
        with contextlib.suppress(RuntimeError):  # the store is gone: rank 0 has stopped waiting
            here = self._store.add("parted", 1)
            deadline = self._clock() + _READ_WITHIN_S
            while self._rank == 0 and here < self._ranks and self._clock() < deadline:
                time.sleep(0.01)
                here = self._store.add("parted", 0)

    def _take(self, key: str) -> str:
        assert self._store is not None
        text = self._store.get(key).decode()
        self._forget(key)
        return text

    def _forget(self, key: str) -> None:
        assert self._store is not None
        self._store.delete_key(key)

    def _next_length(self) -> int:
        now_s = self._clock()
        took_s = max(now_s - self._entered_s, 1e-9)
        self._entered_s = now_s
        fitting = int(self._length * WINDOW_S / took_s)
        # At most doubled, so that one short window (a first step without data to wait for, say) does not mislead.
        return max(1, min(fitting, 2 * self._length, MOST_STEPS))
