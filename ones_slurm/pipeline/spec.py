"""The placement of one micro-batch's work: which block runs where, for how long, after what, with how much memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from math import isfinite
from typing import Literal, get_args

import msgspec

from ones_slurm.model.errors import UsageError

Kind = Literal["forward", "backward", "input_gradient", "weight_gradient"]

# Placement.memory that the search must meet is compared with this slack, because memory may be given in fractions.
MEMORY_TOLERANCE = 1e-6


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of a micro-batch's work.

    `time_us` is in microseconds (any other unit does, used throughout). A block on several `devices` occupies all of
    them at the same time. `memory` is what each of its devices holds more (forward) or less (backward) from its start
    on, in any one unit. `after` names the blocks whose output it needs. `of` names the forward block that a backward
    belongs to; blocks with the same `weights` share one set of parameters. `transfer_us` is the time that its output
    takes to another device, if not the placement's.
    """

    name: str
    time_us: float
    devices: tuple[int, ...]
    memory: float = 0
    after: tuple[str, ...] = ()
    kind: Kind = "forward"
    of: str = ""
    weights: str = ""
    transfer_us: float | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Blocks on devices 0 .. `devices` - 1, checked when it is made.

    `memory` is what each device has left for activations; empty means that it does not bind. Blocks are kept in an
    order in which each comes after what it needs, so that readers can walk them once.
    """

    name: str
    devices: int
    blocks: tuple[Block, ...]
    memory: tuple[float, ...] = ()
    transfer_us: float = 0

    def __post_init__(self) -> None:
        _check(self)
        order = _order(self.blocks)
        msgspec.structs.force_setattr(self, "blocks", tuple(self.blocks[i] for i in order))

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dependencies as pairs of positions in `blocks`."""
        position = {block.name: i for i, block in enumerate(self.blocks)}
        return tuple((position[name], j) for j, block in enumerate(self.blocks) for name in block.after)

    def transfer_between_us(self, producer: int, consumer: int) -> float:
        """Time that the output needs to all devices of the consumer: 0 where the producer already is."""
        source, target = self.blocks[producer], self.blocks[consumer]
        if set(target.devices) <= set(source.devices):
            return 0
        return self.transfer_us if source.transfer_us is None else source.transfer_us

    @property
    def work_us(self) -> tuple[float, ...]:
        """Busy time of each device for one micro-batch."""
        work = [0.0] * self.devices
        for block in self.blocks:
            for d in block.devices:
                work[d] += block.time_us
        return tuple(work)

    @property
    def critical_path_us(self) -> float:
        """Time of one micro-batch alone."""
        ends = [block.time_us for block in self.blocks]
        for i, j in self.edges:
            ends[j] = max(ends[j], ends[i] + self.transfer_between_us(i, j) + self.blocks[j].time_us)
        return max(ends)

    def on(self, device: int) -> tuple[int, ...]:
        """Positions of the blocks that use a device."""
        return tuple(i for i, block in enumerate(self.blocks) if device in block.devices)

    def with_memory(self, memory: float | Sequence[float]) -> Placement:
        """The same blocks with other limits; one number means the same on every device."""
        limits = (float(memory),) * self.devices if isinstance(memory, int | float) else tuple(memory)
        return msgspec.structs.replace(self, memory=limits)


def _check(placement: Placement) -> None:
    if placement.devices < 1:
        raise UsageError(f"placement {placement.name!r} has {placement.devices} devices", hint="it needs at least one")
    if not placement.blocks:
        raise UsageError(f"placement {placement.name!r} has no blocks", hint="a [[blocks]] table for each is needed")
    names = [block.name for block in placement.blocks]
    for name, count in Counter(names).items():
        if not name or count > 1:
            raise UsageError(f"block name {name!r} is empty or used twice", hint="every block needs a name of its own")
    for block in placement.blocks:
        _check_block(block, placement, set(names))
    if not (isfinite(placement.transfer_us) and placement.transfer_us >= 0):
        raise UsageError(f"transfer_us = {placement.transfer_us} is not a time", hint="0 or more microseconds")
    _check_memory(placement)


def _check_block(block: Block, placement: Placement, names: set[str]) -> None:
    def wrong(what: str, right: str) -> UsageError:
        return UsageError(f"block {block.name!r}: {what}", hint=right)

    if not (isfinite(block.time_us) and block.time_us > 0):
        raise wrong(f"time_us = {block.time_us:g}", "a block takes more than 0 microseconds")
    if not block.devices:
        raise wrong("is on no device", f"devices = [0] up to [{placement.devices - 1}], or several of them")
    if len(set(block.devices)) < len(block.devices):
        raise wrong(f"devices {list(block.devices)} names one twice", "each device once")
    strange = [d for d in block.devices if not 0 <= d < placement.devices]
    if strange:
        raise wrong(f"device {strange[0]} does not exist", f"there are devices 0 to {placement.devices - 1}")
    if block.kind not in get_args(Kind):
        raise wrong(f"kind {block.kind!r}", f"one of {', '.join(get_args(Kind))}")
    missing = [name for name in (*block.after, *([block.of] if block.of else [])) if name not in names]
    if missing:
        raise wrong(f"names a block {missing[0]!r} that does not exist", "see `after` and `of`")
    if not isfinite(block.memory):
        raise wrong(f"memory = {block.memory}", "a finite number")
    if block.transfer_us is not None and not (isfinite(block.transfer_us) and block.transfer_us >= 0):
        raise wrong(f"transfer_us = {block.transfer_us}", "0 or more microseconds")


def _check_memory(placement: Placement) -> None:
    if placement.memory and len(placement.memory) != placement.devices:
        raise UsageError(
            f"memory names {len(placement.memory)} devices of {placement.devices}", hint="one limit for each device"
        )
    for d, limit in enumerate(placement.memory):
        if not limit >= 0:
            raise UsageError(f"memory of device {d} is {limit}", hint="0 or more, in the unit of the blocks' memory")
    left, held = [0.0] * placement.devices, [0.0] * placement.devices
    for block in placement.blocks:
        for d in block.devices:
            left[d] += block.memory
            held[d] += abs(block.memory)
    for d in range(placement.devices):
        if abs(left[d]) > MEMORY_TOLERANCE * max(1.0, held[d]):
            raise UsageError(
                f"on device {d} a micro-batch leaves {left[d]:+g} memory behind",
                hint="the memory of its blocks must add up to 0: what a forward takes, its backward gives back",
            )


def _order(blocks: tuple[Block, ...]) -> list[int]:
    """Positions such that needs come first; as written wherever that is possible."""
    position = {block.name: i for i, block in enumerate(blocks)}
    sorter = TopologicalSorter({i: [position[name] for name in block.after] for i, block in enumerate(blocks)})
    try:
        sorter.prepare()
    except CycleError as cycle:
        path = " -> ".join(blocks[i].name for i in cycle.args[1])
        raise UsageError(
            f"the dependencies go round in a circle: {path}", hint="a block cannot wait for itself"
        ) from None
    if all(position[name] < i for i, block in enumerate(blocks) for name in block.after):
        return list(range(len(blocks)))
    order: list[int] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    return order
