"""Chains of stages on torch's own pipeline runtime: V, interleaved, zero-bubble, any map from stage to rank.

The runtime is a private class of `torch.distributed.pipelining`; whether this torch has it in the form that we know is
checked before use (`chain_runtime`), and tests run it. `Executor` runs the same schedules without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline.schedule import Schedule
from ones_slurm.pipeline.spec import Placement

if TYPE_CHECKING:
    import torch
    from torch.distributed.pipelining import PipelineStage

# Kind of block -> the letter of torch's action text, `<stage><letter><micro-batch>`.
LETTERS = {"forward": "F", "backward": "B", "input_gradient": "I", "weight_gradient": "W"}
TESTED_TORCH = "2.13"


def stages_of(placement: Placement) -> dict[str, int]:
    """The stage of each block by name: a forward's depth in the chain, a backward's that of its forward."""
    stage: dict[str, int] = {}
    last: str | None = None
    for block in placement.blocks:
        if block.kind == "forward":
            if len(block.devices) != 1 or block.after != (() if last is None else (last,)):
                raise UsageError(
                    f"{placement.name} is no chain: block {block.name!r} branches or is on several devices",
                    hint="ones_slurm.pipeline.executor.Executor runs any placement",
                )
            stage[block.name], last = len(stage), block.name
    for block in placement.blocks:
        if block.kind != "forward":
            if block.of not in stage:
                raise UsageError(f"block {block.name!r} does not say which forward it is of", hint="of = its name")
            stage[block.name] = stage[block.of]
    return stage


def actions(schedule: Schedule) -> list[list[str]]:
    """The list of each rank in torch's text, compute only, such as `0F0 0F1 0B0`."""
    stage = stages_of(schedule.placement)
    blocks = schedule.placement.blocks
    return [[f"{stage[blocks[i].name]}{LETTERS[blocks[i].kind]}{n}" for i, n in order] for order in schedule.orders]


def chain_runtime(
    schedule: Schedule,
    stages: Sequence[PipelineStage],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Any:
    """Torch's runtime with this schedule loaded: `runtime.step(inputs, target=..., losses=[])` as in its manual.

    `stages` are those of this rank. Gradients are those of the mean loss.
    """
    from torch import __version__
    from torch.distributed.pipelining import schedules

    runtime_class = getattr(schedules, "_PipelineScheduleRuntime", None)
    action = getattr(schedules, "_Action", None)
    if runtime_class is None or action is None or not hasattr(runtime_class, "_prepare_schedule_with_comms"):
        raise UsageError(
            f"torch {__version__} has not the pipeline runtime that is known from torch {TESTED_TORCH}",
            hint="ones_slurm.pipeline.executor.Executor runs the same schedule without it",
        )
    runtime = runtime_class(list(stages), schedule.micro_batches, loss_fn=loss)
    lists = {rank: [action.from_str(text) for text in texts] for rank, texts in enumerate(actions(schedule))}
    runtime._prepare_schedule_with_comms(lists, format="compute_only")
    return runtime
