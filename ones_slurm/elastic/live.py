"""A rank's part in a world that changes around it: founding it, coming in, mustering, and noticing that it broke."""

import atexit
import base64
import hashlib
import os
import sys
import time

import msgspec
import torch
from torch import nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from ones_slurm.elastic.agreement import Store
from ones_slurm.elastic.formation import Formation, Member, Ready, Report, SharedStore, key_of, newest, publish
from ones_slurm.elastic.pulse import Pulse
from ones_slurm.elastic.runfolder import LEFT_CODE, Wanted
from ones_slurm.elastic.world import Seat, World
from ones_slurm.model.errors import Failed

# Ours: a wait at the store is no longer than it has to be by a tenth. torch can wait there by itself, but then nothing
# ends the wait when the world breaks, and each one that it gives up costs two lines of warnings.
_LATE = 0.1
_LOOK_S, _LOOK_AT_MOST_S = 0.0003, 0.05
_GLANCE_S = 0.5
# Ours: three times what the keeper needs to find out who died; then the connection failed between two who live.
_VERDICT_WITHIN_S = 30.0
_MOST_VAIN = 3


class Broken(Exception):
    """The world is no longer whole: a formation was published that nobody agreed on."""


class Live:
    """`formation` is the one that this rank is in, None for a newcomer at the door."""

    def __init__(self, seat: Seat, world: World) -> None:
        self.member, self._seat, self._store = seat.member, seat, seat.store
        self._pulse = Pulse(seat.store, seat.member.name, seat.group.hang_up)
        self._vain = 0
        atexit.register(self._pulse.stop)
        self.formation = self._found(world) if seat.joining is None else None

    @property
    def broken(self) -> bool:
        """Whether to regroup at once."""
        return self._pulse.broken.is_set()

    def store(self) -> Store:
        """What the present world agrees by. A wait there raises `Broken` when the world breaks."""
        assert self.formation is not None
        return _Watchful(self, PrefixStore(f"world/{self.formation.number}", self._store))

    def newest(self) -> Formation:
        """The formation that counts now."""
        found = newest(self._store, self.formation.number if self.formation else 0)
        assert found is not None
        return found

    def knock(self, shape: str) -> None:
        """A newcomer is ready."""
        word = Ready(self.member, shape)
        self._store.set(f"ready/{self.member.name}", msgspec.json.encode(word).decode())

    def wait_at_the_door(self) -> Formation:
        """Until a formation has this newcomer in it. Raises SystemExit(75) when it is not wanted any more."""
        seen, team = -1, self.member.name.partition(".")[0]
        while True:
            found = newest(self._store, seen + 1)
            if found is not None:
                seen = found.number
                if found.rank_of(self.member.name) is not None:
                    return found
            if self._store.check([f"dismissed/{team}"]):
                raise SystemExit(LEFT_CODE)
            self._await([key_of(seen + 1)])

    def planned(self, order: Wanted, shape: str) -> Formation | None:
        """On rank 0: the formation that a live order asks for, once all newcomers stand ready; None until then.

        Raises `Failed` with the reason why there can be none.
        """
        assert self.formation is not None
        if self.formation.generation >= order.generation:
            return None
        names = [name for team in order.coming for name in team.members]
        if names and not self._store.check([f"ready/{name}" for name in names]):
            return None
        words = self._store.multi_get([f"ready/{name}" for name in names]) if names else []
        newcomers = [msgspec.json.decode(word, type=Ready) for word in words]
        for word in newcomers:
            if word.shape != shape:
                raise Failed(f"the model of a newcomer on {word.member.node} ({word.member.name}) is not the others'")
        members = self.formation.members
        staying = [member for member in members if f"{member.name.partition('.')[0]}@{member.node}" not in order.going]
        if not staying:
            raise Failed("the order leaves none of those who have the state")
        return Formation(
            number=self.formation.number + 1,
            generation=order.generation,
            members=(*staying, *(word.member for word in newcomers)),
            batch=order.batch,
            lr_scale=order.lr_scale,
            agreed=True,
        )

    def announce(self, formation: Formation) -> bool:
        """Whether this is what all enter next; not if the keeper was faster with another."""
        return publish(self._store, formation) == formation

    def dismiss(self, order: Wanted) -> None:
        """Those who came for this order are not wanted any more."""
        for team in order.coming:
            self._store.set(f"dismissed/{team.name}", "1")

    def arrive(self, formation: Formation, steps: int) -> list[Report]:
        """Says that this rank is ready for `formation`, with `steps` in its state, and waits until all are.

        Raises `Broken` when another formation takes the place of this one. Nobody lets go of the old group before all
        have done with it.
        """
        self._pulse.entering(formation.number)
        mine = msgspec.json.encode(Report(self.member.name, steps)).decode()
        self._store.set(f"arrived/{formation.number}/{self.member.name}", mine)
        keys = self._arrivals(formation)
        self._await_all(keys)
        return [msgspec.json.decode(word, type=Report) for word in self._store.multi_get(keys)]

    def enter(self, formation: Formation, world: World) -> World:
        """Forms the group of `formation`, once all have arrived; returns this rank's new world."""
        rank, size = formation.rank_of(self.member.name), len(formation.members)
        assert rank is not None
        self.formation = formation
        group = self._seat.group
        group.dissolve()
        group.form(self._store, number=formation.number, rank=rank, size=size, backend=self._seat.backend)
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
        return msgspec.structs.replace(
            world,
            rank=rank,
            size=size,
            generation=formation.generation,
            batch=formation.batch,
            lr_scale=formation.lr_scale,
            store=self.store(),
        )

    def step_done(self) -> None:
        """This world works."""
        self._vain = 0

    def verdict(self, error: BaseException) -> None:
        """After a collective failed: waits until somebody is found dead, and a newer formation published.

        Where everybody lives the same members try again, but not for ever: then the error is raised.
        """
        assert self.formation is not None
        following = self.formation.number + 1
        deadline = time.monotonic() + _VERDICT_WITHIN_S
        while time.monotonic() < deadline:
            if self._await([key_of(following)]):
                return
        self._vain += 1
        if self._vain > _MOST_VAIN:
            raise error
        publish(self._store, self.formation.without(set(), f"rank {self.rank}: {str(error).splitlines()[0]}"))

    @property
    def rank(self) -> int | None:
        """This rank in the present formation."""
        return None if self.formation is None else self.formation.rank_of(self.member.name)

    def depart(self, formation: Formation) -> None:
        """This rank is not in `formation`: it left, once nobody needs it for the last step any more, or was given up.

        Raises SystemExit(75).
        """
        self._pulse.stop()
        if formation.agreed:
            deadline = time.monotonic() + _VERDICT_WITHIN_S
            while time.monotonic() < deadline and not self._await(self._arrivals(formation)):
                if newest(self._store, formation.number + 1) is not None:
                    break
        else:
            print(f"this rank was given up, and the others train on without it: {formation.why}", file=sys.stderr)
        raise SystemExit(LEFT_CODE)

    def part(self) -> None:
        """The training is over for this rank."""
        self._pulse.stop()

    def tell(self, what: str, text: str) -> None:
        """A word for all members of this formation."""
        assert self.formation is not None
        self._store.set(f"told/{self.formation.number}/{what}", base64.b64encode(text.encode()).decode())

    def hear(self, what: str) -> str:
        """The word that a member of this formation tells; waits for it."""
        assert self.formation is not None
        key = f"told/{self.formation.number}/{what}"
        self._await_all([key])
        return base64.b64decode(self._store.get(key)).decode()

    def _arrivals(self, formation: Formation) -> list[str]:
        return [f"arrived/{formation.number}/{member.name}" for member in formation.members]

    def _found(self, world: World) -> Formation:
        """The first formation: rank 0 hears who has which rank, and publishes it."""
        seats = [f"seat/{rank}" for rank in range(world.size)]
        self._store.set(seats[world.rank], msgspec.json.encode(self.member).decode())
        if world.rank == 0:
            self._store.wait(seats)
            members = tuple(msgspec.json.decode(word, type=Member) for word in self._store.multi_get(seats))
            first = Formation(
                number=0, generation=world.generation, members=members, batch=world.batch, lr_scale=world.lr_scale
            )
            publish(self._store, first)
        self._pulse.entering(0)
        # Looked for and not waited for: a torch without libuv (Debian's) does not wake those who wait for a
        # key that comes by compare_set.
        while not self._await([key_of(0)]):
            pass
        return msgspec.json.decode(self._store.get(key_of(0)), type=Formation)

    def _await(self, keys: list[str]) -> bool:
        """Whether these keys come within a glance."""
        began_s = time.monotonic()
        while not self._store.check(keys):
            waited_s = time.monotonic() - began_s
            if waited_s > _GLANCE_S:
                return False
            time.sleep(min(max(waited_s * _LATE, _LOOK_S), _LOOK_AT_MOST_S))
        return True

    def _await_all(self, keys: list[str]) -> None:
        wait_for(self._store, keys, self)


def wait_for(store: SharedStore, keys: list[str], live: Live) -> None:
    """Until these keys are there; raises `Broken` when the world breaks first."""
    began_s = time.monotonic()
    while not store.check(keys):
        if live.broken:
            raise Broken
        time.sleep(min(max((time.monotonic() - began_s) * _LATE, _LOOK_S), _LOOK_AT_MOST_S))


class _Watchful:
    """The part of a store that `Agreement` uses, for ranks that may lose each other at any time."""

    def __init__(self, live: Live, store: PrefixStore) -> None:
        self._live, self._store = live, store

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        wait_for(self._store, [key], self._live)
        return self._store.get(key)

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(key)


def shape_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A fingerprint of what a state is made of: two ranks can exchange theirs exactly if these are the same."""
    named = [*model.named_parameters(), *model.named_buffers()]
    parts = [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in named]
    parts += [type(optimizer).__name__, *(str(len(group["params"])) for group in optimizer.param_groups)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
