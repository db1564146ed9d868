"""Counts of trackable resources: `cpu=4,mem=8000M,node=2,gres/gpu=4,gres/gpu:a100=4`, `gres:gpu:v100:2(S:0-1)`."""

import re

from ones_slurm.slurm.memory import read_memory

_ITEM = re.compile(r"(?:[^,()]|\([^)]*\))+")
# gres/gpu:a100=4 · gres/gpu:a100:4 · gres:gpu:4 · gpu:a100:4(S:0-1) · gpu
_GPU = re.compile(
    r"\s*(?:gres[/:])?gpu(?::(?P<type>[A-Za-z_][^:=()]*))?(?:[:=](?P<count>\d{1,9}))?\s*(?:\([^)]*\)?)?\s*", re.ASCII
)


def read_tres(text: str | None) -> dict[str, float]:
    """The counts by name; memory in MiB. What is no `name=count` is left out."""
    counts: dict[str, float] = {}
    for item in (text or "").split(","):
        name, _, value = item.partition("=")
        size = read_memory(value)
        if name.strip() and size is not None:
            counts[name.strip()] = size.mib
    return counts


def count_gpus(text: str | None) -> int | None:
    """GPUs in a TRES string, a GRES request or a node's Gres; None when it speaks of none.

    Slurm may give the same GPUs twice, in all and by type: the count in all is taken where there is one, else the types
    are added up. A request without a number means one.
    """
    typed: list[int] = []
    untyped: list[int] = []
    for item in _ITEM.findall(text or ""):
        match = _GPU.fullmatch(item)
        if match is not None:
            (typed if match["type"] else untyped).append(int(match["count"] or 1))
    if not typed and not untyped:
        return None
    return sum(untyped or typed)


def gpu_type(text: str | None) -> str:
    """The first GPU type that is named, or nothing."""
    matches = (_GPU.fullmatch(item) for item in _ITEM.findall(text or ""))
    return next((match["type"] for match in matches if match is not None and match["type"]), "")
