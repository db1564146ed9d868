"""Nodes from `scontrol --oneliner show node`, which reads the same in every release."""

import re

from ones_slurm.slurm.client import NodeRecord
from ones_slurm.slurm.tres import count_gpus, gpu_type

_PAIR = re.compile(r"(?:^|(?<=\s))([A-Z][\w:/]*)=(.*?)(?=\s+[A-Z][\w:/]*=|\s*$)")
# The mark that `sinfo` and older releases put after a node's state, and the flag it stands for.
_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# A node in one of these takes no new job: broken, going away, or kept for somebody.
UNUSABLE = {
    *("DOWN", "ERROR", "FAIL", "FAILING", "FUTURE", "UNKNOWN", "INVAL", "INVALID_REG", "NO_RESPOND", "NOT_RESPONDING"),
    *("DRAIN", "DRAINED", "DRAINING", "MAINT", "RESERVED", "BLOCKED", "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"),
    *("POWER_DOWN", "POWERING_DOWN", "POWER_DRAIN"),
}


def read_pairs(line: str) -> dict[str, str]:
    """The `Key=value` pairs of one entry; values may hold spaces, and of a key that occurs twice the first counts."""
    pairs: dict[str, str] = {}
    for key, value in _PAIR.findall(line):
        pairs.setdefault(key, value)
    return pairs


def read_node_states(text: str) -> tuple[str, ...]:
    """`MIXED+PLANNED`, `DOWN*+DRAIN`: the state and its flags as words."""
    words: list[str] = []
    for part in text.split("+"):
        words.append(part.rstrip("".join(_MARKS)))
        words += [_MARKS[mark] for mark in part[len(words[-1]) :]]
    return tuple(dict.fromkeys(word for word in words if word))


def read_nodes(text: str) -> list[NodeRecord]:
    """One record a line, ordered by name as Slurm orders them."""
    return [_read_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _read_node(line: str) -> NodeRecord:
    pairs = read_pairs(line)
    states = read_node_states(pairs.get("State", "UNKNOWN"))
    gres = pairs.get("Gres")
    return NodeRecord(
        name=pairs["NodeName"],
        states=states,
        usable=UNUSABLE.isdisjoint(states),
        gpus=count_gpus(gres) or 0,
        gpu_type=gpu_type(gres),
        cpus=_whole(pairs.get("CPUTot")),
        memory_mib=_whole(pairs.get("RealMemory")),
        partitions=tuple(name for name in pairs.get("Partitions", "").split(",") if name),
    )


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
