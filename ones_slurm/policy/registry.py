"""The policies by name, as a site file gives them."""

import difflib
from collections.abc import Callable

from ones_slurm.model.errors import UsageError
from ones_slurm.model.sockets import Policy
from ones_slurm.policy.equal import Equal
from ones_slurm.policy.fifo import Fifo
from ones_slurm.policy.ones.constants import read_constants
from ones_slurm.policy.ones.paper import OnesPaper
from ones_slurm.policy.ones.policy import Ones
from ones_slurm.policy.peers.consolidated import Consolidated
from ones_slurm.policy.peers.easy import Easy
from ones_slurm.policy.peers.elastic_dp import ElasticDp
from ones_slurm.policy.peers.in_order import FirstFit, StrictFifo
from ones_slurm.policy.peers.optimus import Optimus
from ones_slurm.policy.peers.partitions import PerPartition
from ones_slurm.policy.peers.pollux import Pollux
from ones_slurm.policy.peers.tiresias import Tiresias
from ones_slurm.policy.psrpt import Psrpt

POLICIES: dict[str, Callable[[], Policy]] = {
    "equal": Equal,
    "fifo": Fifo,
    "ones": Ones,
    "ones-paper": OnesPaper,
    "psrpt": Psrpt,
}
# Those that a site can set constants of.
TUNABLE: dict[str, Callable[..., Policy]] = {"ones": Ones, "psrpt": Psrpt}
# Peers hand out single GPUs, which only an imagined cluster lets them do; they are there to be compared with.
PEERS: dict[str, Callable[[], Policy]] = {
    "consolidated": Consolidated,
    "easy": Easy,
    "elastic-dp": ElasticDp,
    "first-fit": FirstFit,
    "optimus": Optimus,
    "pollux": Pollux,
    "strict-fifo": StrictFifo,
    "tiresias": Tiresias,
}


def policy_named(name: str) -> Policy:
    """A policy ready to decide, by its full name (`PolicyChoice.full_name`).

    Raises `UsageError` that names the nearest one there is.
    """
    name, _, constants = name.partition(" ")
    if name in TUNABLE:
        return TUNABLE[name](constants=read_constants(constants.split()))
    if constants:
        raise UsageError(f"policy {name} has no constants", hint=f"those that have: {', '.join(TUNABLE)}")
    if name in PEERS:
        return PerPartition(PEERS[name]())
    if name not in POLICIES:
        near = difflib.get_close_matches(name, [*POLICIES, *PEERS], 1, cutoff=0.4)
        there = f"the policies are {', '.join(sorted(POLICIES))}"
        raise UsageError(f"there is no policy {name!r}", hint=f"did you mean {near[0]!r}? ({there})" if near else there)
    return POLICIES[name]()
