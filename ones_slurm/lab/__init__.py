"""A throw-away Slurm cluster on one machine, for the demo, for the tests, and for trying a site file.

`Lab(LabSpec(nodes=4, gpus_per_node=4))` is a real cluster with real daemons, each node in its own network namespace;
nothing of it touches the machine's own services, users or network, and `down` leaves nothing behind.
"""

from .lab import Lab
from .spec import PROFILES, USERS, LabSpec, Profile, User
from .state import names as lab_names

__all__ = ["PROFILES", "USERS", "Lab", "LabSpec", "Profile", "User", "lab_names"]
