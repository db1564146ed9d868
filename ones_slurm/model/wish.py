"""The wish of a job: between which sizes and batch sizes the co-scheduler may move it.

It travels in Slurm's job comment as one word, `ones:nodes=1-4,batch=64-4096`, because the comment needs no plugin and
no rights on any Slurm. Sites keep charge codes in the same field, so every other word of the comment is left alone.
A pipeline job says `ones:pipeline=FILE,replicas=1-8,batch=64-512`; it grows by the GPUs of whole replicas.
"""

import difflib
import re
from collections.abc import Mapping

import msgspec

from ones_slurm.model.errors import UsageError

# A companion's word is none of ours (see `companion.py`): it has no wish of its own.
_WORD = re.compile(r"(?:^|(?<=[\s;,]))ones:(?!companion-of=)(?P<body>[^\s;]*)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_RANGES = ("nodes", "gpus", "replicas", "batch")
_KEYS = ("nodes", "gpus", "pipeline", "devices", "replicas", "batch")
_EXAMPLE = "a wish looks like ones:nodes=1-4,batch=64-4096"
_PIPELINE_EXAMPLE = "for example ones:pipeline=plan.json,replicas=1-8"


class Bounds(msgspec.Struct, frozen=True):
    """An inclusive range of positive whole numbers, `step` apart from `low` on."""

    low: int
    high: int
    step: int = 1

    def clamp(self, value: int) -> int:
        """The number of the range that is nearest to `value`, from below where there are two."""
        return self.low + (min(max(value, self.low), self.high) - self.low) // self.step * self.step

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high and (value - self.low) % self.step == 0


class Wish(msgspec.Struct, frozen=True):
    """What the user allows. `nodes`, `gpus` and `replicas` exclude each other; `batch` is the global batch in samples.

    `batch.low` is also the *base batch*: the one for which the script's learning rate was chosen. `pipeline` is the
    file with the blocks of a pipeline, as the job will find it, and `devices` the GPUs of one replica of it (0: known
    once the job has read the file).
    """

    nodes: Bounds | None = None
    gpus: Bounds | None = None
    batch: Bounds | None = None
    pipeline: str = ""
    devices: int = 0
    replicas: Bounds | None = None

    def node_bounds(self, asked_nodes: int, gpus_per_node: int) -> Bounds:
        """The range in whole nodes; a job that gave none stays at the size it asked for.

        Raises `UsageError` when no whole number of nodes lies within `gpus`, or is a whole number of replicas.
        """
        if self.replicas is not None and self.devices:
            return self._replica_nodes(self.replicas, max(gpus_per_node, 1))
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

    def at_least(self, nodes: int, asked_nodes: int, gpus_per_node: int) -> "Wish":
        """The wish with its lower end raised to that many nodes, or to its upper end where that is less.

        Raises `UsageError` as `node_bounds` does.
        """
        bounds, per_node = self.node_bounds(asked_nodes, gpus_per_node), max(gpus_per_node, 1)
        if nodes <= bounds.low:
            return self
        if self.replicas is not None and self.devices:
            beside = max(per_node // self.devices, 1)
            low = min(-(-nodes // bounds.step) * beside, self.replicas.high)
            return msgspec.structs.replace(self, replicas=msgspec.structs.replace(self.replicas, low=low))
        least = min(nodes, bounds.high)
        if self.gpus is not None:
            raised = msgspec.structs.replace(self.gpus, low=least * per_node)
            return msgspec.structs.replace(self, gpus=raised)
        return msgspec.structs.replace(self, nodes=msgspec.structs.replace(bounds, low=least))

    def _replica_nodes(self, replicas: Bounds, per_node: int) -> Bounds:
        """A replica takes as few nodes as possible: some whole ones, or with others a part of one."""
        if self.devices % per_node and per_node % self.devices:
            raise UsageError(
                f"a pipeline of {self.devices} devices and nodes with {per_node} GPUs do not divide each other",
                hint="ask for as many GPUs a node as leave no GPU without work",
            )
        nodes, beside = max(self.devices // per_node, 1), max(per_node // self.devices, 1)
        low, high = -(-replicas.low // beside), replicas.high // beside
        if high < low:
            raise UsageError(
                f"a node holds {beside} replicas, and replicas={replicas.low}-{replicas.high} is no multiple of that",
                hint=f"ask for {self.devices * replicas.high} GPUs a node, or for more replicas",
            )
        return Bounds(nodes * low, nodes * high, nodes)


def parse_wish(comment: str | None) -> Wish | None:
    """Reads the wish out of a job comment; None when there is none, so the job is rigid.

    Raises `UsageError` that names the wrong part and shows a right one; a comment is untrusted text.
    """
    words = list(_WORD.finditer(comment or ""))
    if not words:
        return None
    if len(words) > 1:
        raise UsageError("the comment holds more than one ones: word", hint=_EXAMPLE)
    given: dict[str, str] = {}
    for part in words[0]["body"].split(","):
        key, sign, value = part.partition("=")
        if key not in _KEYS or not sign:
            near = difflib.get_close_matches(key, _KEYS, 1)
            meant = f"did you mean {near[0]}=?" if near else f"the keys are {', '.join(_KEYS)}"
            raise UsageError(f"ones: does not know {part[:40]!r}", hint=f"{meant} ({_EXAMPLE})")
        if key in given:
            raise UsageError(f"ones: gives {key} twice", hint=_EXAMPLE)
        given[key] = value
    if "nodes" in given and "gpus" in given:
        raise UsageError("ones: gives both nodes and gpus", hint="give one of them; the other follows from it")
    bounds = {key: _parse_bounds(key, given[key]) for key in _RANGES if key in given}
    return Wish(**bounds, pipeline=_parse_pipeline(given), devices=_parse_devices(given))


def format_wish(wish: Wish) -> str:
    """The comment word that `parse_wish` reads back to the same wish."""
    parts = []
    for key in _KEYS:
        value = getattr(wish, key)
        if isinstance(value, Bounds):
            parts.append(f"{key}={value.low}-{value.high}")
        elif value:
            parts.append(f"{key}={value}")
    return "ones:" + ",".join(parts)


def _parse_pipeline(given: Mapping[str, str]) -> str:
    """The file; raises `UsageError` where what belongs together is not there together."""
    if "pipeline" not in given:
        for key in ("replicas", "devices"):
            if key in given:
                raise UsageError(f"ones: gives {key} without a pipeline", hint=_PIPELINE_EXAMPLE)
        return ""
    for key in ("nodes", "gpus"):
        if key in given:
            raise UsageError(
                f"ones: gives both {key} and a pipeline", hint=f"its size is replicas=, {_PIPELINE_EXAMPLE}"
            )
    if "replicas" not in given:
        raise UsageError("ones: gives a pipeline and not how many replicas of it", hint=_PIPELINE_EXAMPLE)
    if not given["pipeline"]:
        raise UsageError("ones: pipeline= names no file", hint=_PIPELINE_EXAMPLE)
    return given["pipeline"]


def _parse_devices(given: Mapping[str, str]) -> int:
    if "devices" not in given:
        return 0
    devices = _parse_bounds("devices", given["devices"])
    if devices.low != devices.high:
        raise UsageError(
            f"ones: devices={given['devices'][:40]} is a range", hint="a pipeline has one number of devices"
        )
    return devices.low


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
