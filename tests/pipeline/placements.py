"""Random placements for hypothesis: any graph of forwards on one or several devices, with backwards and memory."""

from __future__ import annotations

from hypothesis import strategies as st

from ones_slurm.pipeline import Block, Placement


@st.composite
def placements(draw: st.DrawFn, most_forwards: int = 4) -> Placement:
    devices = draw(st.integers(1, 3))
    times = st.sampled_from([1, 2, 3, 0.7, 1.25])
    forwards: list[Block] = []
    for i in range(draw(st.integers(1, most_forwards))):
        single = st.integers(0, devices - 1).map(lambda d: (d,))
        forwards.append(
            Block(
                name=f"F{i}",
                time_us=draw(times),
                devices=draw(st.one_of(single, st.just(tuple(range(devices))))),
                after=tuple(b.name for b in forwards if draw(st.booleans())),
                memory=draw(st.integers(0, 2)),
            )
        )
    blocks = list(forwards)
    for block in reversed(forwards):
        users = tuple(f"B{user.name[1:]}" for user in forwards if block.name in user.after)
        blocks.append(
            Block(
                name=f"B{block.name[1:]}",
                time_us=draw(times),
                devices=block.devices,
                after=(block.name, *users),
                memory=-block.memory,
                kind="backward",
                of=block.name,
            )
        )
    held = [sum(b.memory for b in forwards if d in b.devices) for d in range(devices)]
    memory = tuple(h * draw(st.sampled_from([1, 1.5, 2])) for h in held) if draw(st.booleans()) else ()
    transfer_us = draw(st.sampled_from([0, 0.5]))
    return Placement(name="random", devices=devices, blocks=tuple(blocks), memory=memory, transfer_us=transfer_us)
