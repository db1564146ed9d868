"""Which client asks Slurm: pyslurm where it fits the running release, else the commands."""

from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.client import SlurmClient
from ones_slurm.slurm.command import Runner, run_here
from ones_slurm.slurm.pyslurm_client import NO_JOB_DICTIONARY, PyslurmClient, pyslurm_version
from ones_slurm.slurm.releases import Release


def choose_client(runner: Runner = run_here) -> tuple[SlurmClient, str]:
    """The client to use and, in words, why. Raises `Unreachable` when there is no Slurm on this machine."""
    commands = CommandClient(runner)
    version = pyslurm_version()
    why_not = rules_out(version, commands.version)
    if why_not is not None:
        return commands, f"Slurm's commands, because {why_not}"
    return PyslurmClient(commands), f"pyslurm {version}, made for Slurm {commands.version}; changes by its commands"


def rules_out(pyslurm: str | None, slurm: Release) -> str | None:
    """Why pyslurm cannot be used with this Slurm; None when it can. Its interface belongs to one series of releases."""
    if pyslurm is None:
        return "pyslurm is not installed"
    numbers = [int(part) for part in pyslurm.split(".")[:2] if part.isdecimal()]
    if tuple(numbers) != slurm.series:
        return f"pyslurm {pyslurm} is made for another series than the running Slurm {slurm}"
    if slurm.series >= NO_JOB_DICTIONARY:
        return f"pyslurm {pyslurm} does not tell the requested resources of a job"
    return None
