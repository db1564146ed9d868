"""What a lab is to look like: how many nodes and GPUs, which kind of site, and who its hosts and users are."""

import re
from pathlib import Path
from typing import Literal

import msgspec

from ones_slurm.model.errors import UsageError

ProfileName = Literal["gres", "whole-node"]

# Ours: below the mount point of most systems' temporary files, on a disk (checkpoints are large), and kept over boots.
BASE_FOLDER = Path("/var/tmp/ones-lab")

NETWORK = "10.77.0.0/16"
PREFIX_BITS = 16
# 254 host addresses are left for nodes in the third octet 0, see `addresses`.
MOST_NODES = 254


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of site. `gres`: GPUs are countable; `whole_nodes`: a job owns its nodes and Slurm never hears of GPUs."""

    name: ProfileName
    gres: bool
    whole_nodes: bool


PROFILES: dict[str, Profile] = {
    "gres": Profile(name="gres", gres=True, whole_nodes=False),
    # As the TACC systems do: scripts carry no --gres, partitions hand out whole nodes.
    "whole-node": Profile(name="whole-node", gres=False, whole_nodes=True),
}


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who exists inside the lab only; `account` and `admin_level` are what sacctmgr is told."""

    name: str
    uid: int
    account: str
    admin_level: Literal["None", "Operator"] = "None"


# Uids far above what adduser hands out (60000 ends its range), so that no system user owns the lab's files.
USERS = (
    User(name="operator", uid=61000, account="staff", admin_level="Operator"),
    User(name="user1", uid=61001, account="physics"),
    User(name="user2", uid=61002, account="chemistry"),
)


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The order form of a lab.

    `slurm_conf` overrides or adds single-valued keys of slurm.conf, `etc_slurm` adds whole files to /etc/slurm (a
    job_submit.lua, say); both exist so that a test can try what a site may have. `shares` are further folders that
    job users must be able to read beside this Python and this package.
    """

    name: str = "lab"
    nodes: int = 4
    gpus_per_node: int = 4
    cpus_per_gpu: int = 4
    profile: ProfileName = "gres"
    folder: Path | None = None
    slurm_conf: dict[str, str] = {}
    etc_slurm: dict[str, str] = {}
    shares: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", self.name):
            raise UsageError(f"'{self.name}' cannot name a lab", hint="use up to 31 lower-case letters, digits and '-'")
        if not 1 <= self.nodes <= MOST_NODES:
            raise UsageError(f"a lab has 1 to {MOST_NODES} nodes, not {self.nodes}")
        if self.gpus_per_node < 0 or self.cpus_per_gpu < 1:
            raise UsageError("gpus_per_node must be 0 or more, cpus_per_gpu 1 or more")
        if self.profile not in PROFILES:
            raise UsageError(f"no profile '{self.profile}'", hint=f"one of: {', '.join(PROFILES)}")

    @property
    def cpus_per_node(self) -> int:
        return self.cpus_per_gpu * max(1, self.gpus_per_node)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"c{i}" for i in range(1, self.nodes + 1))

    @property
    def addresses(self) -> dict[str, str]:
        """Every host with its address: nodes in 10.77.0, `head` (the daemons) and `login` (the users) in 10.77.1."""
        nodes = {name: f"10.77.0.{i}" for i, name in enumerate(self.node_names, start=1)}
        return {"head": "10.77.1.1", "login": "10.77.1.2"} | nodes
