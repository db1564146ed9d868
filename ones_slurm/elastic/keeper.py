"""The keeper: a process of `ones-run` that holds the store of a job and says who has died.

It lives on the batch host, the one node that Slurm never takes away, and outlives every rank, rank 0 too. It hears of
deaths from the wrapper, a line of JSON each on its standard input, and finds those that nobody saw (a network that was
cut, a frozen node) by the members' heartbeats. It ends when its standard input does.
"""

import os
import select
import socket
import sys
import time
from collections.abc import Callable

import msgspec

from ones_slurm.elastic.formation import PARTED, Formation, Member, SharedStore, newest, publish
from ones_slurm.elastic.store import open_store

# Ours: a heartbeat comes twice a second; a machine that is badly overloaded must not lose a rank for it.
SILENT_S = 10.0
_LOOK_EVERY_S = 0.1
_LISTEN_EVERY_S = 0.5
# Ours: a keeper that did not run for so long itself has no right to judge others.
_OWN_GAP_S = 2.0


class Death(msgspec.Struct, frozen=True, tag=True):
    """A line from the wrapper: which member died, and how."""

    name: str
    how: str


class Dismissal(msgspec.Struct, frozen=True, tag=True):
    """A line from the wrapper: this team shall not come in."""

    team: str


class Judge:
    """Publishes the next formation when a member of the newest one is dead."""

    def __init__(self, store: SharedStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._newest: Formation | None = None
        self._dead: dict[str, str] = {}
        self._beats: dict[str, tuple[int, float]] = {}
        self._started: set[str] = set()
        self._listened_s = clock()

    def died(self, name: str, how: str) -> None:
        """The wrapper has seen the end of this process."""
        self._dead.setdefault(name, how)

    def look(self) -> Formation | None:
        """Looks at the members' heartbeats; returns the formation that it published, if it had to."""
        known = self._newest
        self._newest = newest(self._store, known.number if known else 0)
        if self._newest is None:
            return None
        living = [member for member in self._newest.members if member.name not in self._dead]
        self._listen(living)
        lost = [member for member in self._newest.members if member.name in self._dead]
        if not lost or len(lost) == len(self._newest.members):
            return None
        why = "; ".join(f"{self._rank(member)} on {member.node}: {self._dead[member.name]}" for member in lost[:3])
        published = publish(self._store, self._newest.without({member.name for member in lost}, why))
        return published if not published.agreed else None

    def _rank(self, member: Member) -> str:
        assert self._newest is not None
        return f"rank {self._newest.rank_of(member.name)}"

    def _listen(self, members: list[Member]) -> None:
        now_s = self._clock()
        gap_s = now_s - self._listened_s
        if gap_s < _LISTEN_EVERY_S:
            return
        self._listened_s = now_s
        keys = {member.name: f"beat/{member.name}" for member in members}
        self._started |= {name for name, key in keys.items() if name not in self._started and self._store.check([key])}
        heard = [name for name in keys if name in self._started]
        counts = dict(zip(heard, map(int, self._store.multi_get([keys[name] for name in heard])), strict=True))
        for name in keys:
            count = counts.get(name, 0)
            before, since_s = self._beats.get(name, (None, now_s))
            if count != before or gap_s > _OWN_GAP_S:
                self._beats[name] = (count, now_s)
            elif count != PARTED and now_s - since_s > SILENT_S:
                self.died(name, f"no sign of life for {SILENT_S:g} s")


def main() -> None:
    """`python -m ones_slurm.elastic.keeper <listening descriptor>`, as the wrapper starts it."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        port = listening.getsockname()[1]
    held = open_store("127.0.0.1", port, serve=descriptor)
    judge = Judge(held)
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], _LOOK_EVERY_S)
        if readable:
            block = os.read(0, 1 << 16)
            if not block:
                return
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                told = msgspec.json.decode(line, type=Death | Dismissal)
                if isinstance(told, Death):
                    judge.died(told.name, told.how)
                else:
                    held.set(f"dismissed/{told.team}", "1")
        judge.look()


if __name__ == "__main__":
    main()
