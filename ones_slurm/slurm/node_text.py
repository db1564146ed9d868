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
# The states of a node that works, and the flags with which it takes no new job all the same: broken, going away, kept
# for somebody. A state that this list does not know is none to start a job on.
_WORKING = {"IDLE", "MIXED", "ALLOCATED"}
_KEPT_FREE = {
    *("FAIL", "INVALID_REG", "NO_RESPOND", "NOT_RESPONDING", "DRAIN", "MAINT", "RESERVED", "BLOCKED", "POWER_DOWN"),
    *("POWERING_DOWN", "POWER_DRAIN", "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"),
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


def is_usable(states: tuple[str, ...]) -> bool:
    """Whether a new job could ever start on a node in this state, once it is free."""
    return not _WORKING.isdisjoint(states) and _KEPT_FREE.isdisjoint(states)


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
        usable=is_usable(states),
        gpus=count_gpus(gres) or 0,
        gpu_type=gpu_type(gres),
        cpus=_whole(pairs.get("CPUTot")),
        memory_mib=_whole(pairs.get("RealMemory")),
        partitions=tuple(name for name in pairs.get("Partitions", "").split(",") if name),
    )


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
