"""What each device does, transfers included: one order of everything, projected on every device.

Because all lists come from one order, both ends of each pair of devices issue the same sequence of transfers (NCCL
matches them by that, not by name), all members of a group come to its blocks in the same order, and the earliest
unfinished item can always run, even if sends block until they are received.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Literal

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline.replay import replay
from ones_slurm.pipeline.schedule import Op, Schedule
from ones_slurm.pipeline.spec import Placement


class Flow(msgspec.Struct, frozen=True):
    """A tensor that goes from one block to others: the output of forward `of`, or its gradient from user `via`."""

    producer: int
    of: int
    via: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a device's list: run `block`, or send or receive `flow`, for `micro_batch`."""

    do: Literal["run", "send", "receive"]
    micro_batch: int
    block: int = -1
    flow: Flow | None = None
    peer: int = -1


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Which forwards feed which, and which block computes each gradient; positions are those in `Placement.blocks`.

    `inputs[f]`: forwards whose output f takes, in the order of its `after`. `users[f]`: the forwards that take f's.
    `gradient[f]`: the block that computes the gradient of f's inputs; empty for inference.
    """

    inputs: dict[int, tuple[int, ...]]
    users: dict[int, tuple[int, ...]]
    gradient: dict[int, int]


def traffic_of(placement: Placement) -> Traffic:
    """Read the flow of tensors out of the dependencies, or say why the placement cannot be executed."""
    blocks = placement.blocks
    position = {block.name: i for i, block in enumerate(blocks)}
    forwards = [i for i, block in enumerate(blocks) if block.kind == "forward"]
    inputs = {i: tuple(position[name] for name in blocks[i].after) for i in forwards}
    for i, needs in inputs.items():
        strange = [j for j in needs if blocks[j].kind != "forward"]
        if strange:
            raise UsageError(f"forward {blocks[i].name!r} waits for {blocks[strange[0]].name!r}, which is no forward")
    users = {i: tuple(j for j in forwards if i in inputs[j]) for i in forwards}
    gradient: dict[int, int] = {}
    for i, block in enumerate(blocks):
        if block.kind == "forward":
            continue
        forward = position.get(block.of)
        if forward is None or blocks[forward].devices != block.devices:
            raise UsageError(
                f"block {block.name!r} does not say whose {block.kind} it is",
                hint="of = the name of a forward block on the same devices",
            )
        if block.kind != "weight_gradient":
            gradient[forward] = i
    missing = [i for i in forwards if i not in gradient]
    if gradient and missing:
        raise UsageError(f"forward {blocks[missing[0]].name!r} has no backward", hint="all have one, or none has")
    for i in gradient:
        for j in users[i]:
            if gradient[j] not in {position[name] for name in blocks[gradient[i]].after}:
                raise UsageError(
                    f"block {blocks[gradient[i]].name!r} does not wait for {blocks[gradient[j]].name!r},"
                    " which computes its gradient",
                    hint="add it to `after`",
                )
    return Traffic(inputs=inputs, users=users, gradient=gradient)


def lanes(schedule: Schedule) -> list[list[Step]]:
    """The list of each device."""
    placement = schedule.placement
    blocks = placement.blocks
    starts = replay(placement, schedule.orders)
    boundaries = [[starts[op] for op in order] for order in schedule.orders]
    items: list[tuple[float, int, int, tuple[int, ...], list[tuple[int, Step]]]] = []
    for (i, n), start in starts.items():
        items.append((start, 1, n, (i,), [(d, Step(do="run", micro_batch=n, block=i)) for d in blocks[i].devices]))
    for flow, target, consumers in _crossings(placement, traffic_of(placement)):
        source = blocks[flow.producer].devices[0]
        for n in range(schedule.micro_batches):
            ready = starts[flow.producer, n] + blocks[flow.producer].time_us
            due = min(starts[j, n] - placement.transfer_between_us(flow.producer, j) for j in consumers)
            at = max(ready, _not_inside(boundaries[source], schedule.orders[source], placement, due))
            ends = [
                (source, Step(do="send", micro_batch=n, flow=flow, peer=target)),
                (target, Step(do="receive", micro_batch=n, flow=flow, peer=source)),
            ]
            items.append((at, 0, n, (flow.producer, flow.of, -1 if flow.via is None else flow.via, target), ends))
    lists: list[list[Step]] = [[] for _ in range(placement.devices)]
    for *_, parts in sorted(items, key=lambda item: item[:4]):
        for d, step in parts:
            lists[d].append(step)
    return lists


def _crossings(placement: Placement, traffic: Traffic) -> list[tuple[Flow, int, list[int]]]:
    """Each flow to each device that does not have it, with the blocks there that wait for it."""
    found: dict[tuple[Flow, int], list[int]] = defaultdict(list)

    def cross(flow: Flow, consumer: int) -> None:
        for d in placement.blocks[consumer].devices:
            if d not in placement.blocks[flow.producer].devices:
                found[flow, d].append(consumer)

    for i, users in traffic.users.items():
        for j in users:
            cross(Flow(i, i), j)
            if traffic.gradient:
                cross(Flow(traffic.gradient[j], i, j), traffic.gradient[i])
    return [(flow, target, consumers) for (flow, target), consumers in found.items()]


def _not_inside(begins: list[float], order: tuple[Op, ...], placement: Placement, due: float) -> float:
    """When the sender can still send in time: at `due`, or before the block that it is in the middle of by then."""
    at = bisect_right(begins, due) - 1
    if at >= 0 and begins[at] < due < begins[at] + placement.blocks[order[at][0]].time_us:
        return begins[at]
    return due


def rendezvous(lists: list[list[Step]], placement: Placement) -> int:
    """Play the lists with transfers that block both ends, which is the worst that a network does.

    Returns how many items are left when nothing moves any more: 0 if the lists can never hang.
    """
    at = [0] * len(lists)
    moved = True
    while moved:
        moved = False
        for d, steps in enumerate(lists):
            while at[d] < len(steps) and _meets(d, steps[at[d]], lists, at, placement):
                for e in _members(d, steps[at[d]], placement):
                    at[e] += 1
                moved = True
    return sum(len(steps) - here for steps, here in zip(lists, at, strict=True))


def _members(d: int, step: Step, placement: Placement) -> tuple[int, ...]:
    return placement.blocks[step.block].devices if step.do == "run" else (d, step.peer)


def _meets(d: int, step: Step, lists: list[list[Step]], at: list[int], placement: Placement) -> bool:
    """Whether everybody who takes part in a step has come to it."""
    for e in _members(d, step, placement):
        if e == d:
            continue
        other = lists[e][at[e]] if at[e] < len(lists[e]) else None
        if other is None or (other.micro_batch, other.block, other.flow) != (step.micro_batch, step.block, step.flow):
            return False
        if step.do != "run" and (other.do == step.do or other.peer != d):
            return False
    return True
