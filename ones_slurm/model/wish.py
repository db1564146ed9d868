"""The wish of a job: between which sizes and batch sizes the co-scheduler may move it.

It travels in Slurm's job comment as one word, `ones:nodes=1-4,batch=64-4096`, because the comment needs no plugin and
no rights on any Slurm. Sites keep charge codes in the same field, so every other word of the comment is left alone.
"""

import difflib
import re

import msgspec

from ones_slurm.model.errors import UsageError

# A companion's word is none of ours (see `companion.py`): it has no wish of its own.
_WORD = re.compile(r"(?:^|(?<=[\s;,]))ones:(?!companion-of=)(?P<body>[^\s;]*)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_KEYS = ("nodes", "gpus", "batch")
_EXAMPLE = "a wish looks like ones:nodes=1-4,batch=64-4096"


class Bounds(msgspec.Struct, frozen=True):
    """An inclusive range of positive whole numbers."""

    low: int
    high: int

    def clamp(self, value: int) -> int:
        """The number within the range that is nearest to `value`."""
        return min(max(value, self.low), self.high)


class Wish(msgspec.Struct, frozen=True):
    """What the user allows. `nodes` and `gpus` exclude each other; `batch` is the global batch in samples per step.

    `batch.low` is also the *base batch*: the one for which the script's learning rate was chosen.
    """

    nodes: Bounds | None = None
    gpus: Bounds | None = None
    batch: Bounds | None = None

    def node_bounds(self, asked_nodes: int, gpus_per_node: int) -> Bounds:
        """The range in whole nodes; a job that gave none stays at the size it asked for.

        Raises `UsageError` when no whole number of nodes lies within `gpus`.
        """
        if self.nodes is not None:
            return self.nodes
        if self.gpus is None:
            return Bounds(asked_nodes, asked_nodes)
        per_node = max(gpus_per_node, 1)
        low, high = -(-self.gpus.low // per_node), self.gpus.high // per_node
        if high < max(low, 1):
            raise UsageError(
                f"gpus={self.gpus.low}-{self.gpus.high} holds no whole number of nodes with {per_node} GPUs each",
                hint=f"ask for a multiple of {per_node}, or for fewer GPUs per node",
            )
        return Bounds(max(low, 1), high)


def parse_wish(comment: str | None) -> Wish | None:
    """Reads the wish out of a job comment; None when there is none, so the job is rigid.

    Raises `UsageError` that names the wrong part and shows a right one; a comment is untrusted text.
    """
    words = list(_WORD.finditer(comment or ""))
    if not words:
        return None
    if len(words) > 1:
        raise UsageError("the comment holds more than one ones: word", hint=_EXAMPLE)
    bounds: dict[str, Bounds] = {}
    for part in words[0]["body"].split(","):
        key, sign, value = part.partition("=")
        if key not in _KEYS or not sign:
            near = difflib.get_close_matches(key, _KEYS, 1)
            meant = f"did you mean {near[0]}=?" if near else f"the keys are {', '.join(_KEYS)}"
            raise UsageError(f"ones: does not know {part[:40]!r}", hint=f"{meant} ({_EXAMPLE})")
        if key in bounds:
            raise UsageError(f"ones: gives {key} twice", hint=_EXAMPLE)
        bounds[key] = _parse_bounds(key, value)
    if "nodes" in bounds and "gpus" in bounds:
        raise UsageError("ones: gives both nodes and gpus", hint="give one of them; the other follows from it")
    return Wish(**bounds)


def format_wish(wish: Wish) -> str:
    """The comment word that `parse_wish` reads back to the same wish."""
    parts = [f"{key}={bounds.low}-{bounds.high}" for key in _KEYS if (bounds := getattr(wish, key)) is not None]
    return "ones:" + ",".join(parts)


def _parse_bounds(key: str, value: str) -> Bounds:
    match = _RANGE.fullmatch(value)
    if match is None:
        raise UsageError(f"ones: {key}={value[:40]!r} is not a number or a range", hint=f"for example {key}=1-4")
    low = int(match[1])
    high = int(match[2] or match[1])
    if low < 1:
        raise UsageError(f"ones: {key} must be at least 1, not {low}", hint=f"for example {key}=1-4")
    if high < low:
        raise UsageError(f"ones: {key}={low}-{high} runs backwards", hint=f"write {key}={high}-{low}")
    return Bounds(low, high)
