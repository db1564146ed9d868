"""The policies by name, as a site file gives them."""

import difflib
from collections.abc import Callable

from ones_slurm.model.errors import UsageError
from ones_slurm.model.sockets import Policy
from ones_slurm.policy.equal import Equal
from ones_slurm.policy.fifo import Fifo
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.psrpt import Psrpt

POLICIES: dict[str, Callable[[], Policy]] = {"equal": Equal, "fifo": Fifo, "ones": Ones, "psrpt": Psrpt}


def policy_named(name: str) -> Policy:
    """A policy ready to decide. Raises `UsageError` that names the nearest one there is."""
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, 1, cutoff=0.4)
        there = f"the policies are {', '.join(sorted(POLICIES))}"
        raise UsageError(f"there is no policy {name!r}", hint=f"did you mean {near[0]!r}? ({there})" if near else there)
    return POLICIES[name]()
