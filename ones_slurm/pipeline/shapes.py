"""Ready placements: the shapes of Tessel (arXiv 2311.15269, section 2), for any number of devices.

Times are in the unit of the caller; the defaults are the paper's: forward 1, backward with recomputation 3, blocks on
all devices 1. A forward holds one unit of memory until its backward. `inference=True` leaves the backwards away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline.spec import Block, Placement


class Times:
    """What the blocks of a shape take: one stage forward and backward, one all-device block each way."""

    def __init__(self, forward: float = 1, backward: float = 3, shared: float = 1) -> None:
        self.forward = forward
        self.backward = backward
        self.shared = shared


def v(devices: int, times: Times | None = None, *, inference: bool = False) -> Placement:
    """A plain pipeline: one stage a device, forwards down and backwards up."""
    return chain(range(devices), times, name=f"V{devices}", inference=inference)


def interleaved(devices: int, rounds: int = 2, times: Times | None = None) -> Placement:
    """A pipeline that goes over the devices several times, as in Megatron: stage i is on device i mod `devices`."""
    return chain([i % devices for i in range(devices * rounds)], times, name=f"V{devices}x{rounds}")


def chain(
    stage_devices: Sequence[int], times: Times | None = None, *, name: str = "chain", inference: bool = False
) -> Placement:
    """A chain of stages under any map from stage to device."""
    _at_least(name, len(stage_devices), 1)
    t = times or Times()
    forwards = [
        _forward(f"F{i}", t.forward, [d], after=[f"F{i - 1}"] if i else [], held=not inference)
        for i, d in enumerate(stage_devices)
    ]
    return _placement(name, max(stage_devices) + 1, forwards, t, inference=inference)


def split(devices: int, forward: float = 1, input_gradient: float = 1, weight_gradient: float = 1) -> Placement:
    """A pipeline for zero bubbles: each backward is an input gradient, which the next stage waits for, and a weight
    gradient, which nobody waits for. Memory: +2 forward, -1 for each half (as zero-bubble pipelines count it)."""
    _at_least(f"ZB{devices}", devices, 1)
    blocks = [
        Block(name=f"F{d}", time_us=forward, devices=(d,), memory=2, after=(f"F{d - 1}",) if d else ())
        for d in range(devices)
    ]
    for d in reversed(range(devices)):
        after = (f"F{d}",) if d == devices - 1 else (f"F{d}", f"I{d + 1}")
        blocks.append(
            Block(
                name=f"I{d}",
                time_us=input_gradient,
                devices=(d,),
                memory=-1,
                after=after,
                kind="input_gradient",
                of=f"F{d}",
            )
        )
        blocks.append(
            Block(
                name=f"W{d}",
                time_us=weight_gradient,
                devices=(d,),
                memory=-1,
                after=(f"I{d}",),
                kind="weight_gradient",
                of=f"F{d}",
            )
        )
    return Placement(name=f"ZB{devices}", devices=devices, blocks=tuple(blocks))


def x(devices: int, times: Times | None = None, *, inference: bool = False) -> Placement:
    """Two pipelines in opposite directions over the same weights, as in Chimera; each micro-batch uses both."""
    _at_least(f"X{devices}", devices, 2)
    t = times or Times()
    forwards = []
    for way, order in (("d", range(devices)), ("u", reversed(range(devices)))):
        for stage, d in enumerate(order):
            after = [f"F{way}{stage - 1}"] if stage else []
            forwards.append(
                _forward(f"F{way}{stage}", t.forward, [d], after=after, held=not inference, weights=f"stage{stage}")
            )
    return _placement(f"X{devices}", devices, forwards, t, inference=inference)


def m(devices: int, times: Times | None = None, *, inference: bool = False) -> Placement:
    """An embedding that is spread over all devices, before a pipeline."""
    _at_least(f"M{devices}", devices, 1)
    t = times or Times()
    forwards = [_forward("E", t.shared, range(devices), after=[], held=False)]
    for d in range(devices):
        forwards.append(_forward(f"F{d}", t.forward, [d], after=[forwards[-1].name], held=not inference))
    return _placement(f"M{devices}", devices, forwards, t, inference=inference)


def nn(devices: int, times: Times | None = None, *, inference: bool = False) -> Placement:
    """Encoder and decoder, each behind an embedding that is spread over all devices."""
    _at_least(f"NN{devices}", devices, 2)
    t = times or Times()
    forwards: list[Block] = []
    for d in range(devices):
        if d in (0, devices // 2):
            name = "E1" if d == 0 else "E2"
            forwards.append(_forward(name, t.shared, range(devices), after=_last(forwards), held=False))
        forwards.append(_forward(f"F{d}", t.forward, [d], after=_last(forwards), held=not inference))
    return _placement(f"NN{devices}", devices, forwards, t, inference=inference)


def k(devices: int, times: Times | None = None, *, inference: bool = False) -> Placement:
    """Two branches on the two halves of the devices, joined by a block on all of them, as two modalities are."""
    _at_least(f"K{devices}", devices, 2)
    t = times or Times()
    half = devices // 2
    forwards: list[Block] = []
    for branch, members in (("a", range(half)), ("b", range(half, devices))):
        for i, d in enumerate(members):
            after = [f"F{branch}{i - 1}"] if i else []
            forwards.append(_forward(f"F{branch}{i}", t.forward, [d], after=after, held=not inference))
    ends = [f"Fa{half - 1}", f"Fb{devices - half - 1}"]
    forwards.append(_forward("J", t.shared, range(devices), after=ends, held=not inference))
    return _placement(f"K{devices}", devices, forwards, t, inference=inference)


SHAPES: dict[str, Callable[..., Placement]] = {"V": v, "X": x, "M": m, "K": k, "NN": nn}


def by_name(name: str, times: Times | None = None, *, inference: bool = False) -> Placement:
    """`M4` is shape M on 4 devices, `V4x2` a pipeline that goes round twice, `ZB4` one with split backwards."""
    found = re.fullmatch(r"(V|X|M|K|NN|ZB)([1-9]\d{0,4})(?:x([1-9]\d?))?", name)
    if found is None or (found[3] and found[1] != "V"):
        raise UsageError(
            f"{name!r} is neither a file nor a shape",
            hint="shapes: V4, V4x2 (interleaved), X4, M4, K4, NN4, ZB4 (split)",
        )
    shape, devices = found[1], int(found[2])
    if shape == "ZB":
        return split(devices)
    if found[3]:
        return interleaved(devices, int(found[3]), times)
    return SHAPES[shape](devices, times, inference=inference)


def _forward(
    name: str, time_us: float, devices: Sequence[int], *, after: Sequence[str], held: bool, weights: str = ""
) -> Block:
    return Block(
        name=name, time_us=time_us, devices=tuple(devices), memory=int(held), after=tuple(after), weights=weights
    )


def _last(blocks: list[Block]) -> list[str]:
    return [blocks[-1].name] if blocks else []


def _placement(name: str, devices: int, forwards: list[Block], times: Times, *, inference: bool) -> Placement:
    """Add the mirror image: the backward of each block waits for its forward and for the backwards of its users."""
    blocks = list(forwards)
    for block in [] if inference else reversed(forwards):
        users = [user.name for user in forwards if block.name in user.after]
        blocks.append(
            Block(
                name=_backward_name(block.name),
                time_us=times.backward if len(block.devices) == 1 and block.name[0] == "F" else times.shared,
                devices=block.devices,
                memory=-block.memory,
                after=(block.name, *map(_backward_name, users)),
                kind="backward",
                of=block.name,
            )
        )
    return Placement(name=name, devices=devices, blocks=tuple(blocks))


def _backward_name(forward: str) -> str:
    return f"B{forward[1:]}" if forward[0] == "F" else forward.lower()


def _at_least(name: str, count: int, least: int) -> None:
    if count < least:
        raise UsageError(f"{name}: this shape needs at least {least} devices")
