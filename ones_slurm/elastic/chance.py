"""Random states: kept exactly where the world stays the same, derived anew where it does not."""

import ctypes
import functools
import io
import random
from collections.abc import Callable
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


class _Watched:
    """A generator whose state takes long to ask for (0.1 ms from numpy), while in most steps nobody draws from it.

    So the memory that holds the state is looked at, and the generator only asked when that has changed.
    """

    def __init__(self, ask: Callable[[], Any], memory: Callable[[], tuple[Any, ...]]) -> None:
        self._ask, self._memory = ask, memory
        self._seen: tuple[Any, ...] = ()
        self._state: Any = None

    def state(self) -> Any:
        now = self._memory()
        if now != self._seen:
            self._seen, self._state = now, self._ask()
        return self._state


def _inside(thing: object) -> bytes:
    """The memory of an object without its head, which counts references to it."""
    head = object.__basicsize__
    return ctypes.string_at(id(thing) + head, type(thing).__basicsize__ - head)


def _python_memory() -> tuple[Any, ...]:
    generator: Any = random.getstate.__self__  # type: ignore[attr-defined]
    return _inside(generator), generator.gauss_next


# The Mersenne twister's 624 words and its position.
_TWISTER_BYTES = 625 * 4
# The twister that numpy draws from, and where it is: numpy takes 20 µs to say so.
_twister: list[Any] = [None, 0]


def _numpy_memory() -> tuple[Any, ...]:
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if generator is not _twister[0]:
        known = isinstance(generator, np.random.MT19937)
        _twister[:] = generator, generator.ctypes.state_address if known else 0
    if not _twister[1]:
        return (object(),)  # never the same
    # The object around it holds the second half of a pair of normal numbers.
    around: Any = np.random.get_state
    return _inside(around.__self__), ctypes.string_at(_twister[1], _TWISTER_BYTES)


_python = _Watched(random.getstate, _python_memory)
_numpy = _Watched(functools.partial(np.random.get_state, legacy=False), _numpy_memory)


def snapshot() -> Snapshot:
    """The states now."""
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state() if on_gpu else None
    return Snapshot(_python.state(), _numpy.state(), torch.get_rng_state(), cuda)


def go_back(to: Snapshot) -> None:
    """Goes on from where a snapshot was taken."""
    random.setstate(to.python)
    np.random.set_state(to.numpy)
    torch.set_rng_state(to.torch)
    if to.cuda is not None:
        torch.cuda.set_rng_state(to.cuda)
