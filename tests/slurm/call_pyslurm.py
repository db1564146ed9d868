"""Calls one method of the pyslurm client in a process of its own; `places.RemoteClient` is at the other end."""

import json
import sys

import msgspec

from ones_slurm.model.errors import OnesError
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.pyslurm_client import PyslurmClient

method, arguments, named = json.loads(sys.argv[1])
try:
    value = getattr(PyslurmClient(CommandClient()), method)(*arguments, **named)
    print(json.dumps([None, msgspec.to_builtins(value)]))
except OnesError as error:
    print(json.dumps([type(error).__name__, str(error)]))
