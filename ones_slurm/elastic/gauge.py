"""What a rank measures while it trains: the noise in its gradients, and how fast it computes.

One step in `EVERY` is measured, by hooks that see each parameter's gradient when this rank has computed it and the
others' have not been added. Nothing is computed differently for it, so a measured training is the same to the bit.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch.utils.hooks import RemovableHandle

from ones_slurm.elastic.noise import NoiseScale, Thinning
from ones_slurm.elastic.sampler import Share

# Ours: a measurement costs a few per cent of a step, which spread over 20 is nothing.
EVERY = 20
# The first steps of a process pay for warming up.
_FIRST = 5


class Gauge:
    """One rank's. Noise is rank 0's to measure (its part against the whole batch; alone, two batches in a row)."""

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], *, rank: int, ranks: int, device: torch.device
    ) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._ranks = ranks
        # A gradient that is itself spread over the ranks (a DTensor) is nowhere to be seen in one piece.
        noisy = rank == 0 and self._parameters and not any(hasattr(p, "to_local") for p in self._parameters)
        self._thin = Thinning(self._parameters) if noisy else None
        self._watch = _CudaWatch() if device.type == "cuda" else _Watch()
        self._hooks: list[RemovableHandle] = []
        self._pieces: dict[int, torch.Tensor] = {}
        self._steps = 0
        self._own = 0
        self._before: tuple[torch.Tensor, int] | None = None
        self._pending: tuple[torch.Tensor, int, int] | None = None
        self.noise = NoiseScale()
        self.timed = False
        self.samples_per_s: list[float] = []

    def drawing(self, share: Share) -> None:
        """The share's data is there, and the script begins to compute."""
        if self.timed and share.last and self._due:
            self._settle_time()
            self._watch.start(share.own)

    def before_backward(self, share: Share, *, held: bool) -> None:
        """A backward pass begins. `held`: of the passes of a step, only the last one exchanges gradients."""
        self._own += share.own
        if self._ranks > 1 and share.last and self._due:
            measured = held or self._own == share.own
            self._watch_gradients(self._thin if measured and self._own else None)

    def after_backward(self, share: Share) -> None:
        """It is done, and all gradients are there, or queued on the GPU."""
        if not share.last:
            return
        if self._thin is not None and self._ranks == 1:
            self._against_last(share)
        elif self._hooks:
            self.let_go()
            self._against_whole(share)
        self._own = 0
        self._steps += 1

    def let_go(self) -> None:
        """Also of a pass that failed."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def settle(self) -> None:
        """Takes in what was measured. Late, so that no GPU is waited for in the midst of its work."""
        if self._pending is not None:
            norms, small, big = self._pending
            self._pending = None
            small_sqr, big_sqr = norms.tolist()
            self.noise.add(small_sqr, small, big_sqr, big)

    @property
    def _due(self) -> bool:
        return self._steps % EVERY == _FIRST

    def _watch_gradients(self, thin: Thinning | None) -> None:
        """Hooks see each gradient before it is exchanged, and keep of it what `thin` leaves over."""
        self._pieces = {}
        for at, parameter in enumerate(self._parameters):
            seen = self._hook(at, thin)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(seen))  # type: ignore[no-untyped-call]

    def _hook(self, at: int, thin: Thinning | None) -> Callable[[torch.Tensor], None]:
        def seen(_: torch.Tensor) -> None:
            if thin is not None:
                self._pieces[at] = thin.of(at)
            self._watch.lap()

        return seen

    def _against_whole(self, share: Share) -> None:
        pieces, thin = self._pieces, self._thin
        if thin is not None and self._own < share.batch and len(pieces) == len(self._parameters):
            self.settle()
            mine = torch.cat([pieces[at] for at in range(len(self._parameters))])
            mine *= share.batch / (self._own * self._ranks)  # undoes the weight in the mean over ranks
            whole = thin.whole()
            self._pending = (torch.stack([mine.dot(mine), whole.dot(whole)]), self._own, share.batch)

    def _against_last(self, share: Share) -> None:
        """Two batches in a row, though the second gradient is taken a step further on; that is far less than noise."""
        assert self._thin is not None
        if self._before is not None:
            before, batch = self._before
            self._before = None
            if batch == share.batch:
                self.settle()
                now = self._thin.whole()
                both = (before + now) / 2
                norms = torch.stack([(before.dot(before) + now.dot(now)) / 2, both.dot(both)])
                self._pending = (norms, batch, 2 * batch)
        elif self._due:
            self._before = (self._thin.whole(), share.batch)

    def _settle_time(self) -> None:
        if (rate := self._watch.rate()) is not None:
            self.samples_per_s.append(rate)


class _Watch:
    """From the data to the last gradient that this rank computed, without the wait for others."""

    def __init__(self) -> None:
        self._began_s = self._ended_s = 0.0
        self._samples = 0

    def start(self, samples: int) -> None:
        self._samples = samples
        self._began_s = self._ended_s = time.perf_counter()

    def lap(self) -> None:
        self._ended_s = time.perf_counter()

    def rate(self) -> float | None:
        """Samples a second; None if nothing was timed since the last call."""
        took_s, samples = self._ended_s - self._began_s, self._samples
        self._samples = 0
        return samples / took_s if samples and took_s > 0 else None


class _CudaWatch(_Watch):
    """By the GPU's own clock: its work is only queued when the processor comes by."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def start(self, samples: int) -> None:
        self._samples = samples
        self._begin.record()
        self._end.record()

    def lap(self) -> None:
        self._end.record()

    def rate(self) -> float | None:
        samples, self._samples = self._samples, 0
        if not samples:
            return None
        self._end.synchronize()
        took_ms = self._begin.elapsed_time(self._end)
        return samples / took_ms * 1e3 if took_ms > 0 else None
