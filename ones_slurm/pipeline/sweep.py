"""Two directions over one line of devices: whether a period is possible, decided exactly by a sweep along the line.

Such a placement (the X shape) is hard for a solver, because each direction can be moved against the other, and easy to
sweep: device d shares nothing with any but its neighbours. All that matters of a device is where in the period the
forwards of the two micro-batches begin (f, g) and how long each is held there (x, y: from the start of its forward to
that of its backward). A set of all such states that can be continued to the left is an array of booleans, and the next
device's follows from it, because a longer hold on one device leaves more room for the next one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from ones_slurm.pipeline.grid import Grid

# States (period x hold, for both directions) up to which a sweep takes seconds and less than a gigabyte (ours).
MOST_STATES = 30_000_000

States = NDArray[np.bool_]  # (f, x, g, y)


class Strand(msgspec.Struct, frozen=True):
    """One direction: its forward and backward block on each device, in the order of the devices.

    `rising`: its forwards go from device 0 upwards.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    rising: bool


def strands_of(grid: Grid) -> tuple[Strand, Strand] | None:
    """The two directions, if the placement is nothing else."""
    if grid.devices < 2 or not grid.capacity or any(len(here) != 4 for here in grid.on):
        return None
    if sum(map(len, grid.on)) != len(grid.times):
        return None
    paths = _paths(grid)
    found = [_strand(grid, path) for path in paths] if paths is not None else []
    if len(found) != 2 or None in found:
        return None
    one, other = (strand for strand in found if strand is not None)
    return (one, other) if one.rising and not other.rising else (other, one) if other.rising != one.rising else None


def sweep(grid: Grid, strands: tuple[Strand, Strand], period: int) -> tuple[tuple[int, ...] | None, bool]:
    """Starts of all blocks in a repetend of one micro-batch a direction, or None; and whether it was decided at all."""
    down, up = strands
    most = [_longest(grid, strand, period) for strand in strands]
    if (period * most[0]) * (period * most[1]) > MOST_STATES:
        return None, False
    reached: list[States] = []
    for d in range(grid.devices):
        states = _allowed(grid, strands, d, period, most)
        if d == 0:
            states[1:] = False  # a schedule may be turned, so one block begins its period
        else:
            states &= _step(reached[-1], _delays(grid, down, d - 1), _delays(grid, up, d - 1), period)
        if not states.any():
            return None, True
        reached.append(states)
    return _starts(grid, strands, period, reached), True


def _paths(grid: Grid) -> list[list[int]] | None:
    """The blocks as chains, each in order; None where some block has no place in one."""
    depth = [0] * len(grid.times)
    part = list(range(len(grid.times)))
    for edge in sorted(grid.edges, key=lambda edge: edge.consumer):
        depth[edge.consumer] = max(depth[edge.consumer], depth[edge.producer] + edge.delay)
        old, new = part[edge.consumer], part[edge.producer]
        part = [new if at == old else at for at in part]
    paths = [sorted((i for i, at in enumerate(part) if at == name), key=depth.__getitem__) for name in set(part)]
    linked = {(edge.producer, edge.consumer): edge.delay for edge in grid.edges}
    since = [0] * len(grid.times)
    for path in paths:
        for a, b in pairwise(path):
            if (a, b) not in linked:
                return None
            since[b] = since[a] + linked[a, b]
    # Any further dependency must follow from the chain.
    return paths if all(since[e.consumer] - since[e.producer] >= e.delay for e in grid.edges) else None


def _strand(grid: Grid, path: list[int]) -> Strand | None:
    """A chain that goes along all devices and back, takes memory on its way and gives it back."""
    device = {i: d for d, here in enumerate(grid.on) for i in here}
    count = grid.devices
    line = [device[i] for i in path]
    rising = line[:count] == list(range(count))
    if len(path) != 2 * count or line != [*line[:count], *reversed(line[:count])]:
        return None
    if not rising and line[:count] != list(range(count))[::-1]:
        return None
    forward, backward = path[:count], path[count:][::-1]
    if any(grid.memory[f] <= 0 or grid.memory[b] != -grid.memory[f] for f, b in zip(forward, backward, strict=True)):
        return None
    ordered = (forward, backward) if rising else (forward[::-1], backward[::-1])
    return Strand(tuple(ordered[0]), tuple(ordered[1]), rising)


def _longest(grid: Grid, strand: Strand, period: int) -> int:
    """Holds are shorter than this, or memory would not suffice on any device."""
    return 1 + period * max(cap // grid.memory[i] for cap, i in zip(grid.capacity, strand.forward, strict=True))


def _allowed(grid: Grid, strands: tuple[Strand, Strand], d: int, period: int, most: list[int]) -> States:
    """What device d can do by itself: no two blocks at a time, and never more than its memory."""
    (f1, b1), (f2, b2) = ((strand.forward[d], strand.backward[d]) for strand in strands)
    f, x, g, y = np.ix_(range(period), range(most[0]), range(period), range(most[1]))
    begins = (f, f + x, g, g + y)
    lasts = [grid.times[i] for i in (f1, b1, f2, b2)]
    fits = (x >= lasts[0]) & (y >= lasts[2])
    for a in range(4):
        for b in range(a):
            ahead = (begins[a] - begins[b]) % period
            fits = fits & (ahead >= lasts[b]) & (ahead <= period - lasts[a])
    # In flight when a forward begins: its own, and those of the other direction.
    held = grid.memory[f1] * -(-x // period) + grid.memory[f2] * np.maximum(-(-(y - (f - g) % period) // period), 0)
    fits = fits & (held <= grid.capacity[d])
    held = grid.memory[f2] * -(-y // period) + grid.memory[f1] * np.maximum(-(-(x - (g - f) % period) // period), 0)
    return np.asarray(fits & (held <= grid.capacity[d]))


def _delays(grid: Grid, strand: Strand, d: int) -> tuple[int, int]:
    """Least time between the two forwards and between the two backwards on devices d and d + 1."""
    delay = {(edge.producer, edge.consumer): edge.delay for edge in grid.edges}
    a, b = (d, d + 1) if strand.rising else (d + 1, d)
    return delay[strand.forward[a], strand.forward[b]], delay[strand.backward[b], strand.backward[a]]


def _step(states: States, down: tuple[int, int], up: tuple[int, int], period: int) -> States:
    """From the states of a device to those of the next that its neighbour leaves room for."""
    # Downwards the next hold is shorter, by the way there and back; upwards it is longer.
    longer = np.flip(np.logical_or.accumulate(np.flip(states, 1), axis=1), 1)
    middle = np.zeros_like(states)
    for old, new, least in _turns(period, down):
        if least < states.shape[1]:
            middle[new, : states.shape[1] - least] |= longer[old, least:]
    shorter = np.logical_or.accumulate(middle, axis=3)
    after = np.zeros_like(states)
    for new, old, least in _turns(period, up):
        if least < states.shape[3]:
            after[:, :, new, least:] |= shorter[:, :, old, : states.shape[3] - least]
    return after


def _turns(period: int, delays: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """(phase of the first forward, of the second, by how much their holds differ at least)."""
    for first in range(period):
        for second in range(period):
            yield first, second, delays[0] + (second - first - delays[0]) % period + delays[1]


def _starts(grid: Grid, strands: tuple[Strand, Strand], period: int, reached: list[States]) -> tuple[int, ...]:
    """One of the schedules, walked back from the last device."""
    walk = [tuple(int(part) for part in np.argwhere(reached[-1])[0])]
    for d in reversed(range(grid.devices - 1)):
        f, x, g, y = walk[0]
        gaps = _delays(grid, strands[0], d), _delays(grid, strands[1], d)
        downs = {first: x + least for first, second, least in _turns(period, gaps[0]) if second == f}
        ups = {second: y - least for first, second, least in _turns(period, gaps[1]) if first == g}
        walk.insert(0, _before(reached[d], downs, ups))
    starts = [0] * len(grid.times)
    for strand, (phase, hold) in zip(strands, ((0, 1), (2, 3)), strict=True):
        order = list(range(grid.devices)) if strand.rising else list(range(grid.devices))[::-1]
        begin = walk[order[0]][phase]
        for at, d in enumerate(order):
            if at:
                least = _delays(grid, strand, min(d, order[at - 1]))[0]
                begin += least + (walk[d][phase] - begin - least) % period
            starts[strand.forward[d]] = begin
            starts[strand.backward[d]] = begin + walk[d][hold]
    return tuple(start - min(starts) for start in starts)


def _before(states: States, downs: dict[int, int], ups: dict[int, int]) -> tuple[int, ...]:
    """A state from which the walk can have come: long enough a hold downwards, short enough a one upwards."""
    for f, longest in downs.items():
        for g, shortest in ups.items():
            found = np.argwhere(states[f, longest:, g, : max(shortest + 1, 0)])
            if found.size:
                x, y = (int(part) for part in found[0])
                return f, x + longest, g, y
    raise AssertionError("a reached state has been reached from nowhere")
