"""The module that a script calls in its loop: one object for life, whatever world it runs in."""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ones_slurm.elastic.world import World

# Older torches (2.6) always send rank 0's parameters to the others again: right as well, only slower.
_MAY_SKIP_SYNC = "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters


class Net(nn.Module):
    """The script's model as `module`; in a world of several its gradients are averaged by DistributedDataParallel.

    `rescue` is asked when the forward pass fails because the world broke. Then the model goes on alone, so that the
    script's loop reaches the end of the step, which will not count.
    """

    def __init__(self, module: nn.Module, rescue: Callable[[RuntimeError], bool], **options: Any) -> None:
        super().__init__()
        self.module = module
        self._rescue, self._options = rescue, options
        # Not a submodule: its parameters are those of `module`.
        self._parallel: list[DistributedDataParallel] = []

    def enter(self, world: World, *, known: bool) -> None:
        """Builds what this world needs. `known` says that all members hold the same parameters already."""
        self._parallel.clear()
        if world.size > 1:
            ids = [world.device] if world.device.type == "cuda" else None
            sync: dict[str, Any] = {"init_sync": False} if known and _MAY_SKIP_SYNC else {}
            self._parallel.append(DistributedDataParallel(self.module, device_ids=ids, **sync, **self._options))

    def leave(self) -> None:
        """Lets go of the world, so that its group can be dissolved."""
        self._parallel.clear()

    @property
    def parallel(self) -> bool:
        """Whether gradients are exchanged."""
        return bool(self._parallel)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Within it gradients only add up here."""
        return self._parallel[0].no_sync() if self._parallel else contextlib.nullcontext()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The model's own."""
        if not self._parallel:
            return self.module(*inputs, **named)
        try:
            return self._parallel[0](*inputs, **named)
        except RuntimeError as error:
            if not self._rescue(error):
                raise
        return self.module(*inputs, **named)
