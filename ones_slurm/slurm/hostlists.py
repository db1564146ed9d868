"""Slurm's node lists, by ClusterShell: `c[1-2],login-[08,10]` and the words that mean none."""

import functools
import re

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSetException

_NONE = {"", "none", "none assigned", "(null)", "n/a"}
# What stands between commas outside brackets.
_PIECE = re.compile(r"(?:[^,\[]|\[[^\]]*(?:\]|$))+")
# The common case, without which a year of accounting would take minutes: one bracket at the end, plain ranges.
_SIMPLE = re.compile(r"([\w.-]*)\[(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\]", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_BRACKET = re.compile(r"\[\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*\]", re.ASCII)
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
# Ours, five times the nodes of the largest machines: text beyond it is not a node list (and would take a second).
_MOST_NODES = 50_000


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
    simple = _SIMPLE.fullmatch(piece)
    if simple is not None and (names := _expand_ranges(simple[1], simple[2])):
        return names
    if _PLAIN.fullmatch(piece) or not _is_well_formed(piece) or _size_bound(piece) > _MOST_NODES:
        return [piece]
    try:
        return list(NodeSet(piece, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, RangeSetException, ValueError, AssertionError):  # an assertion says: too large a range
        return [piece]


def _expand_ranges(prefix: str, ranges: str) -> list[str]:
    """The names, if the ranges ascend and are padded alike; nothing for those that are left to ClusterShell."""
    padded = ranges.startswith("0")
    width, last = len(ranges.replace(",", "-").partition("-")[0]), -1
    names: list[str] = []
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        first, begin = last + 1, int(low)
        last = int(high or low)
        alike = all(len(end) == width if padded else end[0] != "0" for end in (low, high or low))
        if not alike or not first <= begin <= last or len(names) + last - begin >= _MOST_NODES:
            return []
        names += [f"{prefix}{number:0{width if padded else 0}}" for number in range(begin, last + 1)]
    return names


def _is_well_formed(piece: str) -> bool:
    """Whether each bracket holds numbers and ranges only: of others, ClusterShell makes millions of names."""
    return not set("[]") & set(_BRACKET.sub("", piece))


def _size_bound(piece: str) -> int:
    """No fewer than the names that the ranges in `piece` stand for."""
    bound = 1
    for bracket in re.findall(r"\[[^\]]*\]", piece):
        spans = (abs(int(last) - int(first)) for first, last in _RANGE.findall(bracket))
        bound *= sum(spans) + bracket.count(",") + 1
    return bound
