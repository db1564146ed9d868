"""The state of a training, sent from those who have it to those who do not.

Tensors travel in large flat buckets, from survivors on the receiver's own node where there are some; several buckets
come from several senders. The rest, the *skeleton*, is plain containers and goes through the store.
"""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from ones_slurm.model.errors import Failed

# Ours: large enough that the network is busy, small enough that a copy beside the model is nothing.
BUCKET_BYTES = 32 << 20
# Any dtype may be viewed at such an offset.
_ALIGN_BYTES = 16
_SLOT = "\0tensor"


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """A tensor without its content."""

    shape: tuple[int, ...]
    dtype: str
    cpu: bool

    def empty(self, device: torch.device) -> torch.Tensor:
        """Room for it."""
        kind: torch.dtype = getattr(torch, self.dtype)
        return torch.empty(self.shape, dtype=kind, device="cpu" if self.cpu else device)


class Parcel:
    """A state, taken apart: `skeleton` can be written down, `tensors` are those of the state itself, no copies."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.tensors: list[torch.Tensor] = []
        bare = {name: self._bare(part) for name, part in state.items()}
        for name, part in bare.items():
            _must_be_plain(name, part)
        self._bare_state = bare

    def manifest(self) -> str:
        """All but the tensors' contents, as text for the store."""
        specs = [
            Spec(tuple(t.shape), str(t.dtype).removeprefix("torch."), t.device.type == "cpu") for t in self.tensors
        ]
        file = io.BytesIO()
        torch.save(self._bare_state, file)
        packed = msgspec.msgpack.encode((specs, file.getvalue()))
        return base64.b85encode(packed).decode()

    def _bare(self, part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            self.tensors.append(part.detach())
            return (_SLOT, len(self.tensors) - 1)
        if isinstance(part, dict):
            return {key: self._bare(value) for key, value in part.items()}
        if type(part) in (list, tuple):
            return type(part)(self._bare(value) for value in part)
        return part


def unpack(manifest: str, device: torch.device) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """The state with room for its tensors, and those tensors in the sender's order. Nothing in it can run code."""
    packed = base64.b85decode(manifest)
    specs, skeleton = msgspec.msgpack.decode(packed, type=tuple[list[Spec], bytes])
    tensors = [spec.empty(device) for spec in specs]
    bare = torch.load(io.BytesIO(skeleton), weights_only=True)
    return _filled(bare, tensors), tensors


def exchange(
    tensors: Sequence[torch.Tensor],
    *,
    rank: int,
    nodes: Sequence[str],
    senders: Sequence[int],
    receivers: Sequence[int],
    device: torch.device,
) -> None:
    """Every receiver's tensors become the senders'. All of both call it; `nodes` are those of all ranks, in order."""
    for number, bucket in enumerate(_buckets(tensors)):
        pairs = [(_sender(number + at, to, nodes, senders), to) for at, to in enumerate(receivers)]
        mine = [(source, to) for source, to in pairs if rank in (source, to)]
        if not mine:
            continue
        flat = torch.empty(_size(bucket), dtype=torch.uint8, device=device)
        if rank in senders:
            _copy(bucket, flat, into=True)
            operations = [dist.P2POp(dist.isend, flat, to) for _, to in mine]
        else:
            operations = [dist.P2POp(dist.irecv, flat, source) for source, _ in mine]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        if rank not in senders:
            _copy(bucket, flat, into=False)


def _sender(turn: int, receiver: int, nodes: Sequence[str], senders: Sequence[int]) -> int:
    near = [rank for rank in senders if nodes[rank] == nodes[receiver]] or senders
    return near[turn % len(near)]


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    bucket: list[torch.Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if _size(bucket) >= BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _room(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGN_BYTES) * _ALIGN_BYTES


def _size(bucket: Sequence[torch.Tensor]) -> int:
    return sum(map(_room, bucket))


@torch.no_grad()
def _copy(bucket: Sequence[torch.Tensor], flat: torch.Tensor, *, into: bool) -> None:
    at = 0
    for tensor in bucket:
        length = tensor.numel() * tensor.element_size()
        place = flat[at : at + length].view(tensor.dtype).view(tensor.shape)
        if into:
            place.copy_(tensor)
        else:
            tensor.copy_(place)
        at += _room(tensor)


def _filled(part: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(part, tuple) and len(part) == 2 and part[0] == _SLOT:
        return tensors[part[1]]
    if isinstance(part, dict):
        return {key: _filled(value, tensors) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(_filled(value, tensors) for value in part)
    return part


def _must_be_plain(name: str, part: Any) -> None:
    file = io.BytesIO()
    try:
        torch.save(part, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Failed(
            f"the state of the {name} cannot be sent to a new rank: {first}",
            hint="it must be made of tensors, numbers, texts and plain containers of them",
        ) from error
