"""How a generation is started: the `srun` line, the environment of its ranks, the user's command with its numbers."""

import os
import pathlib
import re
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence

import msgspec

from ones_slurm.elastic.runfolder import RunFolder, Team
from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Launcher

_PLACEHOLDER = re.compile(r"\{(local_batch|batch|lr|checkpoint|world)\}")

# What srun would take for its own options, and what Slurm does not keep true when the job's size changes. Counts per
# node (SLURM_GPUS_PER_NODE, SLURM_CPUS_PER_TASK, …) stay: a change of size leaves nodes whole.
STALE = frozenset(
    {
        "SLURM_ARBITRARY_NODELIST",
        "SLURM_DISTRIBUTION",
        "SLURM_GPUS",
        "SLURM_HOSTFILE",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_NUM_NODES",
        "SLURM_NNODES",
        "SLURM_NODELIST",
        "SLURM_NPROCS",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_CORE",
        "SLURM_NTASKS_PER_GPU",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_NTASKS_PER_SOCKET",
        "SLURM_STEP_NODELIST",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
    }
)
# Left over from a launcher further up; a rank that saw them would join the wrong world.
_WORLD = frozenset(
    {
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("ONES_STORE_FD", "ONES_STORE", "ONES_TEAM", "ONES_TASK", "ONES_NODE", "ONES_JOINING"),
        *("ONES_FIRST_RANK", "ONES_WORLD", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"),
    }
)


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One size: these nodes, `ranks_per_node` ranks on each. `batch` is 0 where the script's own applies."""

    number: int
    nodes: tuple[str, ...]
    ranks_per_node: int
    batch: int
    lr_scale: float = 1.0
    world: int = 0

    @property
    def ranks(self) -> int:
        """The size of the world: `world` where it was said, for nodes may differ and ranks may have died."""
        return self.world or len(self.nodes) * self.ranks_per_node


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """The user's command. It is *foreign* when it holds placeholders: then it knows nothing of our API, gets its
    numbers on the command line, and is asked to save by a signal."""

    command: tuple[str, ...]
    lr: float | None = None

    @property
    def foreign(self) -> bool:
        """Whether the numbers of a generation go into the command line."""
        return any(_PLACEHOLDER.search(word) for word in self.command)

    def check(self) -> None:
        """Raises `UsageError` when a placeholder has no number to stand for."""
        if self.lr is None and any("{lr}" in word for word in self.command):
            raise UsageError("the command holds {lr}, and nobody said which", hint="ones-run --lr 0.1 -- …")

    def for_generation(self, generation: Generation, folder: RunFolder) -> list[str]:
        """The command with the numbers of a generation; `{local_batch}` is rounded down, to 1 at the least."""
        numbers = {
            "world": str(generation.ranks),
            "batch": str(generation.batch),
            "local_batch": str(max(1, generation.batch // max(1, generation.ranks))),
            "lr": f"{(self.lr or 0.0) * generation.lr_scale:g}",
            "checkpoint": str(folder.foreign_checkpoint),
        }
        return [_PLACEHOLDER.sub(lambda found: numbers[found[1]], word) for word in self.command]


def srun_line(
    generation: Generation,
    launcher: Launcher,
    rank_starter: pathlib.Path,
    command: Sequence[str],
    *,
    joining: bool = False,
) -> list[str]:
    """One step with explicit counts. It survives the loss of a node: Slurm may take nodes away while it runs.

    One that is joining uses what ranks of an earlier step have left, which Slurm still counts as that step's.
    """
    count, ranks = len(generation.nodes), generation.ranks_per_node
    return [
        "srun",
        f"--nodes={count}",
        f"--ntasks={count * ranks}",
        f"--ntasks-per-node={ranks}",
        f"--nodelist={','.join(generation.nodes)}",
        "--distribution=block",
        "--no-kill",
        "--kill-on-bad-exit=0",
        *(["--overlap"] if joining else []),
        "--export=ALL",
        *([f"--mpi={launcher.mpi}"] if launcher.mpi else []),
        *launcher.srun_options,
        sys.executable,
        str(rank_starter),
        *command,
    ]


def step_environment(
    env: Mapping[str, str],
    generation: Generation,
    script: Script,
    folder: RunFolder,
    launcher: Launcher,
    *,
    batch_host: str,
    checkpoint_every_s: float,
) -> dict[str, str]:
    """The environment of srun and of its ranks: nothing stale, and what `ones-rank` and the API read."""
    clean = {name: value for name, value in env.items() if name not in STALE and name not in _WORLD}
    return clean | {
        "ONES_GENERATION": str(generation.number),
        "ONES_RUN_DIR": str(folder.path),
        "ONES_BATCH": str(generation.batch),
        "ONES_LR_SCALE": repr(generation.lr_scale),
        "ONES_CHECKPOINT_EVERY_S": repr(checkpoint_every_s),
        "ONES_BATCH_HOST": batch_host,
        "ONES_INTERFACE": launcher.interface,
        "ONES_SIGNAL": launcher.signal,
        "ONES_FOREIGN": "1" if script.foreign else "",
    }


def team_environment(team: Team, store: str, *, joining: int | None, first: int, world: int) -> dict[str, str]:
    """What ranks need to find the store that `ones-run` keeps, and each other. Newcomers are `joining` a generation;
    `first` is their first rank in a world of `world`, as it is planned."""
    env = {
        "ONES_STORE": store,
        "ONES_TEAM": team.name,
        "ONES_FIRST_RANK": str(first),
        "ONES_WORLD": str(world),
        # A script that begins with torch's own init_process_group("env://") finds the store as under torchrun.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    return env if joining is None else {**env, "ONES_JOINING": str(joining)}


def signal_of(launcher: Launcher) -> signal.Signals:
    """The signal that asks for a save; raises `UsageError` for a name that is none."""
    try:
        return signal.Signals[f"SIG{launcher.signal.removeprefix('SIG')}"]
    except KeyError as error:
        raise UsageError(f"launcher.signal = {launcher.signal!r} is no signal", hint='for example "USR2"') from error


def as_typed(command: Sequence[str]) -> str:
    """A command as a person would type it."""
    return shlex.join(command)


def rank_starter_beside(program: str | os.PathLike[str]) -> pathlib.Path:
    """`ones-rank`, which is installed beside `ones-run`."""
    return pathlib.Path(program).resolve().with_name("ones-rank")
