"""A *formation*: which processes make up the world, from one regrouping to the next.

A process keeps its name, its *member* name, for life; its rank is its place in the formation. Formations are numbered
and published in the store, each once and for all (compare and set): by rank 0 when an order is entered in memory, by
the keeper of the store when a member has died. Whoever looks at the newest one knows the truth.
"""

from typing import Protocol

import msgspec

# Where a heartbeat's count stood last, for a member that has ended as it should.
PARTED = -1


class Member(msgspec.Struct, frozen=True):
    """One process. `name` is `<team>.<task>`: the step that started it, as the wrapper counts them, and its task."""

    name: str
    node: str


class Formation(msgspec.Struct, frozen=True, kw_only=True):
    """A world. `agreed` ones are entered at the end of a step, all at once; the others at once, for somebody died.

    `why` is the first cause of one that nobody agreed on. `batch` is 0 for the script's own.
    """

    number: int
    generation: int
    members: tuple[Member, ...]
    batch: int = 0
    lr_scale: float = 1.0
    agreed: bool = False
    why: str = ""

    def rank_of(self, name: str) -> int | None:
        """The rank of a member, None for a process that is none."""
        return next((rank for rank, member in enumerate(self.members) if member.name == name), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes, in order of rank."""
        return tuple(dict.fromkeys(member.node for member in self.members))

    def without(self, names: set[str], why: str) -> "Formation":
        """The next one, of those who are left."""
        left = tuple(member for member in self.members if member.name not in names)
        return msgspec.structs.replace(self, number=self.number + 1, members=left, agreed=False, why=why)


class Report(msgspec.Struct, frozen=True):
    """What a process says of itself when it enters a formation: the steps in its state, -1 for a newcomer's."""

    name: str
    steps: int


class Ready(msgspec.Struct, frozen=True):
    """A newcomer's word: it stands at the door, and this is the shape of its model."""

    member: Member
    shape: str


class SharedStore(Protocol):
    """The part of torch's stores that is used for formations."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def check(self, keys: list[str]) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...
    def multi_get(self, keys: list[str]) -> list[bytes]: ...


def key_of(number: int) -> str:
    """Under which key a formation is published."""
    return f"formation/{number}"


def publish(store: SharedStore, formation: Formation) -> Formation:
    """Publishes a formation, and returns the one that stands under its number: somebody else may have been first."""
    mine = msgspec.json.encode(formation).decode()
    return msgspec.json.decode(store.compare_set(key_of(formation.number), "", mine), type=Formation)


def read(store: SharedStore, number: int) -> Formation | None:
    """The formation of this number, None while there is none."""
    if not store.check([key_of(number)]):
        return None
    return msgspec.json.decode(store.get(key_of(number)), type=Formation)


def newest(store: SharedStore, since: int = 0) -> Formation | None:
    """The newest formation from number `since` on."""
    found = None
    while (following := read(store, since if found is None else found.number + 1)) is not None:
        found = following
    return found
