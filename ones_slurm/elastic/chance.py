"""Random states: kept exactly where the world stays the same, derived anew where it does not."""

import ctypes
import io
import random
from typing import Any, NamedTuple

import numpy as np
import torch


def pack() -> bytes:
    """The states of Python's, numpy's and torch's generators of this process, as `torch.save` writes them."""
    kind, key, at, has_gauss, gauss = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(key).astype(np.int64)), int(at), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


def restore(packed: bytes) -> None:
    """Goes on with the states that `pack` returned."""
    state = torch.load(io.BytesIO(packed), weights_only=True)
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, key, at, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, key.numpy().astype(np.uint32), at, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def derive(seed: int, rank: int, step: int) -> None:
    """Seeds all generators from (seed, rank, step): a new world has no old state for each of its ranks, but what it
    draws must not depend on when or how often it was resized."""
    words = np.random.SeedSequence([seed, rank, step]).generate_state(2)
    random.seed(int(words[0]))
    np.random.seed(int(words[0]))
    torch.manual_seed(int(words[0]) << 32 | int(words[1]))


class Snapshot(NamedTuple):
    """All generators' states within this process, cheap to take."""

    python: Any
    numpy: Any
    torch: torch.Tensor
    cuda: torch.Tensor | None


# The last state of numpy's generator, with the bytes in which it was found: numpy takes 0.1 ms to hand it out, and in
# most steps nobody draws from it.
_numpy_seen: list[Any] = [b"", None]
# The Mersenne twister's 624 words and its position.
_TWISTER_BYTES = 625 * 4


def _numpy_state() -> Any:
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if not isinstance(generator, np.random.MT19937):
        return np.random.get_state()
    now = ctypes.string_at(generator.ctypes.state_address, _TWISTER_BYTES)
    if now != _numpy_seen[0]:
        _numpy_seen[:] = now, np.random.get_state()
    return _numpy_seen[1]


def snapshot() -> Snapshot:
    """The states now."""
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state() if on_gpu else None
    return Snapshot(random.getstate(), _numpy_state(), torch.get_rng_state(), cuda)


def go_back(to: Snapshot) -> None:
    """Goes on from where a snapshot was taken."""
    random.setstate(to.python)
    np.random.set_state(to.numpy)
    torch.set_rng_state(to.torch)
    if to.cuda is not None:
        torch.cuda.set_rng_state(to.cuda)
