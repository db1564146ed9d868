"""Models whose parameters are spread over the ranks (`fully_shard`): their state in one piece, and back.

A sharded job leaves and starts again at its new size. Its checkpoints hold whole tensors, which torch's
`distributed.checkpoint` collects from the shards and cuts anew for whatever world reads them.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def is_sharded(model: nn.Module) -> bool:
    """Whether any parameter lives on several ranks (is a DTensor)."""
    return any(hasattr(parameter, "to_local") for parameter in model.parameters())


def collected(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The states of model and optimizer in whole tensors. All ranks call it; rank 0 gets them."""
    # Imported here, for it takes the better part of a second that only sharded models have to spend.
    from torch.distributed.checkpoint import state_dict as dcp

    options = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole_model, whole_optimizer = dcp.get_state_dict(model, optimizer, options=options)
    return {"model": whole_model, "optimizer": whole_optimizer}


def spread(model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Takes over what `collected` gave, each rank its part. All ranks call it with the same state."""
    from torch.distributed.checkpoint import state_dict as dcp

    dcp.set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=dcp.StateDictOptions(full_state_dict=True),
    )
