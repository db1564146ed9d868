"""Who is dead, and what the world is without them."""

import pytest

pytest.importorskip("torch")

from ones_slurm.elastic.formation import PARTED, Formation, Member, newest, publish
from ones_slurm.elastic.keeper import SILENT_S, Judge

pytestmark = pytest.mark.torch

MEMBERS = tuple(Member(f"0.{task}", f"c{task + 1}") for task in range(3))
FIRST = Formation(number=0, generation=4, members=MEMBERS, batch=64, lr_scale=2.0)


class Kept:
    """The part of a store that is used here."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def add(self, key: str, amount: int) -> int:
        self.values[key] = str(int(self.values.get(key, "0")) + amount)
        return int(self.values[key])

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        assert expected == ""
        return self.values.setdefault(key, desired).encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]


class Watch:
    """A judge, its store and its clock."""

    def __init__(self) -> None:
        self.store, self.now_s = Kept(), 0.0
        self.judge = Judge(self.store, lambda: self.now_s)
        publish(self.store, FIRST)

    def passes(self, seconds: float, *beating: str) -> Formation | None:
        """Time goes by, in which these members give signs of life; the formation that came of it."""
        found = None
        for _ in range(round(seconds)):
            self.now_s += 1.0
            for name in beating:
                self.store.add(f"beat/{name}", 1)
            found = self.judge.look() or found
        return found


def test_those_who_outlive_a_death_are_the_next_formation_and_the_first_cause_is_in_it() -> None:
    watch = Watch()
    assert watch.passes(3, "0.0", "0.1", "0.2") is None
    watch.judge.died("0.0", "Killed")
    found = watch.judge.look()
    assert found is not None
    assert (found.number, found.members, found.agreed) == (1, MEMBERS[1:], False)
    assert (found.generation, found.batch, found.lr_scale) == (4, 64, 2.0)
    assert found.why == "rank 0 on c1: Killed"
    assert watch.judge.look() is None, "once is enough"


def test_silence_is_a_death_and_slowness_of_the_keeper_itself_is_none() -> None:
    watch = Watch()
    watch.passes(2, "0.0", "0.1", "0.2")
    assert watch.passes(SILENT_S - 1, "0.0", "0.1") is None
    watch.now_s += 60.0  # the keeper did not run
    assert watch.passes(SILENT_S - 1, "0.0", "0.1") is None
    found = watch.passes(4, "0.0", "0.1")
    assert found is not None
    assert found.members == MEMBERS[:2]
    assert found.why == "rank 2 on c3: no sign of life for 10 s"


def test_who_has_ended_as_it_should_is_not_missed() -> None:
    watch = Watch()
    watch.passes(2, "0.0", "0.1", "0.2")
    watch.store.set("beat/0.2", str(PARTED))
    assert watch.passes(3 * SILENT_S, "0.0", "0.1") is None


def test_where_an_order_was_announced_first_the_dead_are_missing_from_the_world_after_it() -> None:
    watch = Watch()
    newcomer = Member("1.0", "c9")
    ordered = Formation(number=1, generation=5, members=(*MEMBERS, newcomer), agreed=True)
    publish(watch.store, ordered)
    watch.judge.died("0.1", "Killed")
    watch.judge.look()
    found = newest(watch.store)
    assert found is not None
    assert (found.number, found.generation) == (2, 5)
    assert found.members == (MEMBERS[0], MEMBERS[2], newcomer)


def test_nobody_is_left_to_be_a_world() -> None:
    watch = Watch()
    for member in MEMBERS:
        watch.judge.died(member.name, "Killed")
    assert watch.judge.look() is None
    assert newest(watch.store) == FIRST


def test_two_who_publish_the_same_number_find_the_same_formation() -> None:
    store = Kept()
    publish(store, FIRST)
    one = publish(store, FIRST.without({"0.1"}, "one saw it"))
    other = publish(store, FIRST.without({"0.2"}, "the other saw it"))
    assert one == other
    assert newest(store) == one
