"""What the wrapper believes of its allocation, and whom it asks.

`SLURM_*` variables name the job and its batch host, and nothing more is taken from them: Slurm leaves their counts and
node lists as they were when a job is made smaller, and 22.05 restarts a requeued job with the counts of its submission.
"""

import subprocess
from collections.abc import Mapping
from typing import Protocol

import msgspec
from ClusterShell.NodeSet import NodeSet, NodeSetException

from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Site

# Ours: beyond Slurm's own message timeout (10 s) a busy slurmctld has answered or will not.
_ANSWER_WITHIN_S = 30.0


class Identity(msgspec.Struct, frozen=True):
    """Which job this is. `job_id` is as `scontrol` takes it (`12`, `12_3`)."""

    job_id: str
    restarts: int
    batch_host: str
    submit_dir: str


class Allocation(Protocol):
    """What the wrapper asks of Slurm during a job."""

    def nodes(self) -> tuple[str, ...] | None:
        """The nodes that the job holds now; None when nobody can say."""
        ...

    def comment(self) -> str:
        """The job's comment, "" when nobody can say."""
        ...

    def requeue(self) -> str:
        """Puts this job back in the queue, which ends this very process; "" or why Slurm refuses."""
        ...

    def end_steps(self) -> None:
        """Ends what an srun that was killed has left running; the batch script goes on."""
        ...


def identity(env: Mapping[str, str]) -> Identity | None:
    """The job that this process runs in; None outside of Slurm. Raises `UsageError` in a heterogeneous job."""
    job_id = env.get("SLURM_JOB_ID")
    if not job_id:
        return None
    if env.get("SLURM_HET_SIZE"):
        raise UsageError("ones-run cannot move a heterogeneous job", hint="submit it without het groups")
    if env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_ARRAY_TASK_ID"):
        job_id = f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    restarts = env.get("SLURM_RESTART_COUNT", "0")
    return Identity(
        job_id=job_id,
        restarts=int(restarts) if restarts.isdecimal() else 0,
        batch_host=env.get("SLURMD_NODENAME", ""),
        submit_dir=env.get("SLURM_SUBMIT_DIR", "."),
    )


def expand(hosts: str) -> tuple[str, ...]:
    """The names in one of Slurm's host lists, in its order."""
    try:
        return tuple(NodeSet(hosts))
    except NodeSetException as error:
        raise UsageError(f"{hosts!r} is not a host list: {error}") from error


def ranks_per_node(env: Mapping[str, str], site: Site) -> int:
    """One rank for each GPU that the job has on a node, and one where it has none.

    `SLURM_GPUS_ON_NODE` and `CUDA_VISIBLE_DEVICES` speak of this node, and a change of size leaves nodes whole. A site
    where Slurm does not count GPUs says in its site file how many a node of each partition has.
    """
    if (counted := env.get("SLURM_GPUS_ON_NODE", "")).isdecimal() and int(counted) > 0:
        return int(counted)
    if visible := [device for device in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if device.strip()]:
        return len(visible)
    partition = site.partitions.get(env.get("SLURM_JOB_PARTITION", ""))
    return max(1, partition.gpus_per_node if partition is not None else 0)


class SlurmAllocation:
    """Asks by `squeue` and `scontrol`, where a compute node has them."""

    def __init__(self, job_id: str, env: Mapping[str, str]) -> None:
        self._job_id = job_id
        self._first_nodes = env.get("SLURM_JOB_NODELIST", "")
        self._asked = False

    def nodes(self) -> tuple[str, ...] | None:
        """From `squeue`; at the very start of the script the environment will do, for nothing has changed since."""
        at_start, self._asked = not self._asked, True
        said = self._ask("squeue", "-h", "-j", self._job_id, "-o", "%N")
        if said is not None and said.strip():
            return expand(said.strip())
        return expand(self._first_nodes) if at_start and self._first_nodes else None

    def comment(self) -> str:
        """From `squeue`."""
        return (self._ask("squeue", "-h", "-j", self._job_id, "-o", "%k") or "").strip()

    def requeue(self) -> str:
        """By `scontrol requeue`."""
        try:
            done = subprocess.run(
                ["scontrol", "requeue", self._job_id],
                capture_output=True,
                text=True,
                timeout=_ANSWER_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else (done.stderr.strip() or f"scontrol ended with {done.returncode}")

    def end_steps(self) -> None:
        """By `squeue --steps` and `scancel`."""
        said = self._ask("squeue", "--steps", "-h", "-j", self._job_id, "-o", "%i") or ""
        for step in said.split():
            if step.rpartition(".")[2].isdecimal():  # not `batch`, which is this process, nor `extern`
                self._ask("scancel", step)

    def _ask(self, *command: str) -> str | None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


class NoAllocation:
    """A laptop: there is nobody to ask."""

    def nodes(self) -> tuple[str, ...] | None:
        return None

    def comment(self) -> str:
        return ""

    def requeue(self) -> str:
        return "this is no Slurm job"

    def end_steps(self) -> None:
        """There are none."""
