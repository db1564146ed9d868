"""Slurm's node lists, by ClusterShell: `c[1-2],login-[08,10]` and the words that mean none."""

import functools
import re

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSetException

_NONE = {"", "none", "none assigned", "(null)", "n/a"}
# What stands between commas outside brackets.
_PIECE = re.compile(r"(?:[^,\[]|\[[^\]]*(?:\]|$))+")
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
# Ours, because no Slurm has a million nodes: text beyond it is not a node list.
_MOST_NODES = 1_000_000


@functools.lru_cache(maxsize=16384)
def expand(text: str | None) -> tuple[str, ...]:
    """The node names in a node list, in its order; none for an empty list or a word such as `None assigned`.

    A piece that is no node list is taken as one name, so that nothing is lost and nothing raised. Cached, because the
    same lists come back with every look at the queue.
    """
    if text is None or text.strip().lower() in _NONE:
        return ()
    names: dict[str, None] = {}
    for piece in _PIECE.findall(text):
        names.update(dict.fromkeys(_expand_piece(piece.strip())))
    names.pop("", None)
    return tuple(names)


def fold(names: tuple[str, ...] | list[str]) -> str:
    """The shortest node list for these names, as Slurm takes it."""
    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def _expand_piece(piece: str) -> list[str]:
    if _PLAIN.fullmatch(piece) or _size_bound(piece) > _MOST_NODES:
        return [piece]
    try:
        return list(NodeSet(piece, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, RangeSetException, ValueError):
        return [piece]


def _size_bound(piece: str) -> int:
    """No fewer than the names that the ranges in `piece` stand for."""
    bound = 1
    for bracket in re.findall(r"\[[^\]]*\]", piece):
        spans = (abs(int(last) - int(first)) for first, last in _RANGE.findall(bracket))
        bound *= sum(spans) + bracket.count(",") + 1
    return bound
