"""How plans, decisions and views become rows of the journal, and come back."""

import hashlib
import zlib
from collections.abc import Sequence

import msgspec

from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Tick
from ones_slurm.model.cluster import ClusterView, JobView, Past
from ones_slurm.model.plan import Action, Grow, Plan, Reallocate, Requeue, Shrink, Start


def encode_plan(plan: Plan) -> bytes:
    """The bytes of a plan; equal bytes mean equal plans, to the last bit of each number."""
    return msgspec.msgpack.encode(plan, order="deterministic")


def decode_plan(packed: bytes) -> Plan:
    """The plan of these bytes."""
    return msgspec.msgpack.decode(packed, type=Plan)


def size_of(action: Action, held: int) -> int:
    """The node count after an action on a job that holds `held` nodes."""
    if isinstance(action, Shrink):
        return len(action.keep)
    if isinstance(action, Reallocate):
        return len(action.allocation)
    return action.nodes if isinstance(action, Start | Requeue | Grow) else held


def decision_row(tick: Tick, decision: Decision) -> Sequence[object]:
    """A row of `decisions`."""
    action = decision.action
    numbers = msgspec.json.encode(decision.numbers).decode()
    kind, generation = (_kind(action), action.generation) if action is not None else (None, None)
    return tick.tick, decision.job_id, tick.now_s, decision.reason, kind, generation, numbers


def action_row(tick: Tick, action: Action, held: int) -> Sequence[object]:
    """A row of `actions`, but for what becomes of it."""
    text = msgspec.json.encode(action).decode()
    sizes = (held, size_of(action, held), action.batch)
    return action.job_id, action.generation, tick.tick, _kind(action), text, *sizes, tick.now_s


def holding_row(job: JobView, now_s: float) -> Sequence[object]:
    """A row of `holdings`."""
    return job.job_id, job.submit_s, " ".join(job.nodes), job.gpus, job.batch, job.start_s, now_s


def _kind(action: Action) -> str:
    return str(action.__struct_config__.tag)


def said(decision: Decision) -> tuple[str, str | None]:
    """What a decision says; the same words twice in a row are written once."""
    return decision.reason, _kind(decision.action) if decision.action is not None else None


def pack_view(what: ClusterView | tuple[Past, ...]) -> tuple[bytes, bytes]:
    """(hash, compressed bytes)."""
    packed = msgspec.msgpack.encode(what)
    return hashlib.blake2b(packed, digest_size=16).digest(), zlib.compress(packed, 1)


def pack_memory(memory: Memory) -> bytes:
    """The bytes of the reconciler's memory."""
    return msgspec.msgpack.encode(memory, order="deterministic")
