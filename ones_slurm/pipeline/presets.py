"""The schedules that everybody knows, for any placement that they make sense for: what a search has to beat.

Each preset gives the orders of the devices, or None where it does not apply or gets stuck. Whether it fits in memory
is for `verify` to say.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ones_slurm.pipeline.listing import list_schedule
from ones_slurm.pipeline.replay import Deadlock, replay
from ones_slurm.pipeline.schedule import Op, Orders, Schedule, orders_of
from ones_slurm.pipeline.spec import Block, Placement


def presets(placement: Placement, micro_batches: int) -> list[Schedule]:
    """All presets that apply to this placement; `sequential` always does."""
    found = []
    for name, make in PRESETS.items():
        orders = make(placement, micro_batches)
        if orders is not None:
            found.append(Schedule(placement=placement, micro_batches=micro_batches, orders=orders, source=name))
    return found


def sequential(placement: Placement, micro_batches: int) -> Orders:
    """One micro-batch after the other: the slowest, with the least memory."""
    return orders_of(placement, [(i, n) for n in range(micro_batches) for i in range(len(placement.blocks))])


def gpipe(placement: Placement, micro_batches: int) -> Orders:
    """All forwards, then all backwards. The sum of depth and micro-batch orders each half as a wave."""
    depth = _depths(placement)
    ops = [(i, n) for i in range(len(placement.blocks)) for n in range(micro_batches)]
    ops.sort(key=lambda op: (placement.blocks[op[0]].kind != "forward", depth[op[0]] + op[1], op[1], depth[op[0]]))
    return orders_of(placement, ops)


def one_f_one_b(placement: Placement, micro_batches: int) -> Orders | None:
    """1F1B: a backward before a forward, and never more micro-batches in flight than forward stages from here on.

    Blocks on several devices are called as soon as they can run (1F1B+).
    """
    return _orders(placement, list_schedule(placement, micro_batches, _backward_first, _stages_left(placement)))


def one_f_one_b_inserted(placement: Placement, micro_batches: int) -> Orders | None:
    """1F1B+ the other way: 1F1B of the blocks on one device, the others put in when their neighbour stage starts."""
    alone = [block for block in placement.blocks if len(block.devices) == 1]
    if len(alone) in (0, len(placement.blocks)):
        return None
    reduced = _without_shared(placement)
    starts = list_schedule(reduced, micro_batches, _backward_first, _stages_left(reduced))
    if starts is None:
        return None
    position = {block.name: i for i, block in enumerate(placement.blocks)}
    begins = {(position[reduced.blocks[i].name], n): start for (i, n), start in starts.items()}
    key = {(i, n): (start + placement.blocks[i].time_us, 0, n, i) for (i, n), start in begins.items()}
    for e, block in enumerate(placement.blocks):
        if len(block.devices) > 1:
            i, follows = _neighbour(placement, e)
            lag = placement.blocks[i].time_us if follows else 0
            key |= {(e, n): (begins[i, n] + lag, 1, n, e) for n in range(micro_batches)}
    orders = orders_of(placement, sorted(key, key=lambda op: key[op]))
    try:
        replay(placement, orders)
    except Deadlock:
        return None
    return orders


def memory_limited(placement: Placement, micro_batches: int) -> Orders | None:
    """1F1B with as many micro-batches in flight as memory allows, not one more."""
    if not placement.memory:
        return None
    return _orders(placement, list_schedule(placement, micro_batches, _backward_first, memory=placement.memory))


def interleaved(placement: Placement, micro_batches: int) -> Orders | None:
    """Megatron's order for a chain that goes over the devices several times; N must be a multiple of the devices."""
    chain = _forward_chain(placement)
    devices = placement.devices
    if chain is None or len(chain) < 2 * devices or len(chain) % devices or micro_batches % devices:
        return None
    if any(placement.blocks[i].devices != (stage % devices,) for stage, i in enumerate(chain)):
        return None
    backward = _backward_of(placement)
    if any(i not in backward for i in chain) or len(placement.blocks) != 2 * len(chain):
        return None
    rounds = len(chain) // devices
    orders = []
    for d in range(devices):
        mine = [chain[r * devices + d] for r in range(rounds)]
        forwards = [
            (mine[r], group + n)
            for group in range(0, micro_batches, devices)
            for r in range(rounds)
            for n in range(devices)
        ]
        backwards = [
            (backward[mine[r]], group + n)
            for group in range(0, micro_batches, devices)
            for r in reversed(range(rounds))
            for n in range(devices)
        ]
        warm = min(2 * (devices - d - 1) + (rounds - 1) * devices, len(forwards))
        order = forwards[:warm]
        for forward, back in zip(forwards[warm:], backwards, strict=False):
            order += [forward, back]
        orders.append(tuple(order + backwards[len(forwards) - warm :]))
    return tuple(orders)


def chimera_direct(placement: Placement, micro_batches: int) -> Orders | None:
    """Chimera: two opposite pipelines of half the depth's micro-batches each, one such unit after the other.

    The end of a unit overlaps the beginning of the next by as much as serves best.
    """
    if not _is_two_opposite_chains(placement):
        return None
    per_unit = max(placement.devices // 2, 1)
    unit = list_schedule(placement, min(per_unit, micro_batches), _backward_first, _stages_left(placement))
    if unit is None:
        return None
    length_us = max(start + placement.blocks[i].time_us for (i, _), start in unit.items())
    work_us = per_unit * max(placement.work_us)
    best: tuple[float, Orders] | None = None
    for eighths in range(9):
        shift_us = work_us + (length_us - work_us) * eighths / 8
        begins = {
            (i, n + u * per_unit): start + u * shift_us
            for u in range(-(-micro_batches // per_unit))
            for (i, n), start in unit.items()
            if n + u * per_unit < micro_batches
        }
        orders = orders_of(placement, _by_start(begins))
        starts = replay(placement, orders)
        makespan_us = max(start + placement.blocks[i].time_us for (i, _), start in starts.items())
        if best is None or makespan_us <= best[0]:
            best = makespan_us, orders
    return best[1] if best else None


def zb_h1(placement: Placement, micro_batches: int) -> Orders | None:
    """ZB-H1: 1F1B whose weight gradients fill the gaps, within the memory that 1F1B needs on its first device."""
    if not any(block.kind == "weight_gradient" for block in placement.blocks):
        return None
    left = _stages_left(placement)
    needed = max(
        sum(left[i] * max(placement.blocks[i].memory, 0) for i in placement.on(d) if i in left)
        for d in range(placement.devices)
    )
    memory = (needed,) * placement.devices
    return _orders(placement, list_schedule(placement, micro_batches, _input_gradient_first, memory=memory))


PRESETS: dict[str, Callable[[Placement, int], Orders | None]] = {
    "sequential": sequential,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "1f1b+": one_f_one_b_inserted,
    "1f1b-memory": memory_limited,
    "interleaved": interleaved,
    "chimera": chimera_direct,
    "zb-h1": zb_h1,
}


def _backward_first(block: Block) -> int:
    """Backwards first, among each kind those on several devices, since many wait for them."""
    return 2 * (block.kind == "forward") + (len(block.devices) == 1)


def _input_gradient_first(block: Block) -> int:
    return ("input_gradient", "backward", "forward", "weight_gradient").index(block.kind)


def _by_start(starts: dict[Op, float]) -> list[Op]:
    return sorted(starts, key=lambda op: (starts[op], op[1], op[0]))


def _orders(placement: Placement, starts: dict[Op, float] | None) -> Orders | None:
    return None if starts is None else orders_of(placement, _by_start(starts))


def _without_shared(placement: Placement) -> Placement:
    """The blocks on one device alone; what they wait for through the others is handed on. Memory is left out."""
    needs: dict[str, dict[str, None]] = {}
    alone: list[Block] = []
    for block in placement.blocks:
        near: dict[str, None] = {}
        for name in block.after:
            near |= needs[name]
        single = len(block.devices) == 1
        needs[block.name] = {block.name: None} if single else near
        if single:
            of = block.of if any(other.name == block.of for other in alone) else ""
            alone.append(msgspec.structs.replace(block, after=tuple(near), memory=0, of=of))
    return msgspec.structs.replace(placement, blocks=tuple(alone), memory=())


def _neighbour(placement: Placement, shared: int) -> tuple[int, bool]:
    """The nearest block on one device, and whether the shared one follows it.

    A forward stands before its first user (an embedding), a backward after its last need; if there is none, the
    other way round.
    """
    forward = placement.blocks[shared].kind == "forward"
    for follows in (not forward, forward):
        reached, wave = {shared}, [shared]
        while wave:
            wave = [
                near
                for i, j in placement.edges
                for near, far in [(i, j) if follows else (j, i)]
                if far in wave and near not in reached
            ]
            reached.update(wave)
            alone = [i for i in wave if len(placement.blocks[i].devices) == 1]
            if alone:
                return (max(alone) if follows else min(alone)), follows
    return next(i for i, block in enumerate(placement.blocks) if len(block.devices) == 1), False


def _depths(placement: Placement) -> list[int]:
    depth = [0] * len(placement.blocks)
    for i, j in sorted(placement.edges, key=lambda edge: edge[1]):
        depth[j] = max(depth[j], depth[i] + 1)
    return depth


def _stages_left(placement: Placement) -> dict[int, int]:
    """For each forward: how many stages on one device the longest way from it goes through, itself included."""
    blocks = placement.blocks
    left = [int(block.kind == "forward" and len(block.devices) == 1) for block in blocks]
    for i, j in sorted(placement.edges, key=lambda edge: -edge[0]):
        if blocks[i].kind == blocks[j].kind == "forward":
            left[i] = max(left[i], int(len(blocks[i].devices) == 1) + left[j])
    return {i: max(left[i], 1) for i, block in enumerate(blocks) if block.kind == "forward"}


def _forward_chain(placement: Placement) -> list[int] | None:
    """The forwards, if each needs exactly the one before."""
    chain = [i for i, block in enumerate(placement.blocks) if block.kind == "forward"]
    needs = [placement.blocks[i].after for i in chain]
    names = [placement.blocks[i].name for i in chain]
    return chain if needs == [(), *((name,) for name in names[:-1])] else None


def _backward_of(placement: Placement) -> dict[int, int]:
    position = {block.name: i for i, block in enumerate(placement.blocks)}
    return {position[b.of]: i for i, b in enumerate(placement.blocks) if b.kind == "backward" and b.of}


def _is_two_opposite_chains(placement: Placement) -> bool:
    """Two pipelines over all devices, of which one runs as `0, 1, ...` and the other back."""
    forwards = [block for block in placement.blocks if block.kind == "forward"]
    ways = []
    for first in [block for block in forwards if not block.after]:
        way = [first]
        while users := [block for block in forwards if way[-1].name in block.after]:
            way.append(users[0])
        ways.append([block.devices for block in way])
    down = [(d,) for d in range(placement.devices)]
    return len(ways) == 2 and sorted(ways) == sorted([down, down[::-1]]) and len(forwards) == 2 * len(down)
