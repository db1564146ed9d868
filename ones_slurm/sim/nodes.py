"""What an imagined cluster is made of: so many nodes of one kind, then so many of another."""

import re
from collections.abc import Sequence

import msgspec

from ones_slurm.model.cluster import NodeView
from ones_slurm.model.errors import UsageError

# Nodes behind one switch where nobody said (ours).
NODES_PER_RACK = 16
_KIND = re.compile(
    r"(?P<count>\d{1,6})x(?P<gpus>\d{1,4})"
    r"(?::(?P<gpu_type>[\w.-]*)(?:\*(?P<speed>\d{1,4}(?:\.\d{1,6})?))?(?::(?P<partitions>[\w.+-]+))?)?"
    r"(?:@(?P<rack>[\w.-]+))?",
    re.ASCII,
)
_EXAMPLE = "as 16, or 8x4:a100:gpu@r1,8x4:v100*0.5:gpu@r2 (COUNTxGPUS:TYPE*SPEED:PARTITION+PARTITION@RACK)"


class NodeKind(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes. `speed` is that of one of their GPUs, where 1 is what traces, profiles and recipes were made on."""

    count: int
    gpus: int
    gpu_type: str = ""
    speed: float = 1.0
    partitions: tuple[str, ...] = ()
    rack: str = ""


def read_kinds(text: str) -> tuple[NodeKind, ...]:
    """`8x4:a100:gpu@r1,8x4:v100*0.5:gpu` → two kinds; all but count and GPUs may be left out. Raises `UsageError`."""
    kinds = []
    for part in text.split(","):
        match = _KIND.fullmatch(part.strip())
        if match is None or not (int(match["count"]) and int(match["gpus"])):
            raise UsageError(f"--nodes: {part.strip()!r} describes no nodes", hint=_EXAMPLE)
        kinds.append(
            NodeKind(
                count=int(match["count"]),
                gpus=int(match["gpus"]),
                gpu_type=match["gpu_type"] or "",
                speed=float(match["speed"] or 1.0),
                partitions=tuple(dict.fromkeys(name for name in (match["partitions"] or "").split("+") if name)),
                rack=match["rack"] or "",
            )
        )
    return tuple(kinds)


def node_views(kinds: Sequence[NodeKind]) -> tuple[NodeView, ...]:
    """The nodes, numbered through all kinds; `NODES_PER_RACK` to a rack where a kind names none."""
    each = [kind for kind in kinds for _ in range(kind.count)]
    width = len(str(len(each)))
    return tuple(
        NodeView(
            f"n{number:0{width}}",
            kind.gpus,
            usable=True,
            gpu_type=kind.gpu_type,
            partitions=tuple(sorted(kind.partitions)),
            rack=kind.rack or f"r{(number - 1) // NODES_PER_RACK:03}",
        )
        for number, kind in enumerate(each, start=1)
    )


def speeds_of(kinds: Sequence[NodeKind]) -> dict[str, float]:
    """Speed by GPU type, of those that are not as fast as in the trace. Raises `UsageError` if a type has two."""
    speeds: dict[str, float] = {}
    for kind in kinds:
        if speeds.setdefault(kind.gpu_type, kind.speed) != kind.speed or not kind.speed:
            raise UsageError(
                f"--nodes: GPU type {kind.gpu_type!r} has the speeds {speeds[kind.gpu_type]:g} and {kind.speed:g}"
                if kind.speed
                else f"--nodes: GPU type {kind.gpu_type!r} has no speed",
                hint=f"one speed above 0 for each type, {_EXAMPLE}",
            )
    return {name: speed for name, speed in speeds.items() if speed != 1.0}
