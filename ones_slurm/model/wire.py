"""The messages between a job (`ones-run`) and the daemon, as JSON over HTTP.

They are level-triggered: every `Sync` carries the job's whole state and every `Reply` the whole standing order, so
that either side may die, forget and come back, and a lost or repeated message changes nothing.
"""

import enum
from typing import Annotated

import msgspec

from ones_slurm.model.adoption import Control

Name = Annotated[str, msgspec.Meta(max_length=256)]
Text = Annotated[str, msgspec.Meta(max_length=1024)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Phase(enum.StrEnum):
    """Where the wrapper of a job stands.

    starting → training → leaving (saving, ranks exit) → left (no rank runs, state is on disk) → starting …;
    finished and failed are final.
    """

    STARTING = "starting"
    TRAINING = "training"
    LEAVING = "leaving"
    LEFT = "left"
    FINISHED = "finished"
    FAILED = "failed"


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a training is, by its own account. Untrusted: a policy must bound whatever it derives from it.

    `samples` counts every sample trained on so far over all generations, `total_samples` is what the script will
    run in all (epochs × samples an epoch) where it knows. `base_batch` is the global batch the script was tuned for.
    """

    epoch: Count = 0
    step: Count = 0
    samples: Count = 0
    total_samples: Count | None = None
    samples_per_s: float = 0.0
    loss: float | None = None
    base_batch: Count | None = None
    metrics: Annotated[dict[Name, float], msgspec.Meta(max_length=32)] = {}


class Pipeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a step of one replica of a pipeline takes, by its number of micro-batches, as searched for this job.

    `devices` are the GPUs of a replica, `micro_batch` the samples in a micro-batch, `steps` pairs of micro-batches and
    seconds. Untrusted, like `Progress`.
    """

    devices: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    micro_batch: Annotated[int, msgspec.Meta(ge=1, le=2**20)]
    steps: Annotated[tuple[tuple[Count, float], ...], msgspec.Meta(max_length=64)] = ()


class Declined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job could not follow an order (disk full, say) and trains on as it was."""

    generation: Count
    reason: Text


class Lent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion that has come up: a Slurm job of its own, whose nodes this job may use and whose ranks may join."""

    job_id: Name
    nodes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=20000)]


class Sync(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a job says of itself. `generation` is the one it runs or, in phase left, the one it waits to enter.

    `live` says that its ranks can enter another generation in memory, without an exit (the script uses our API).
    `companions` are those that stand ready or take part; `nodes` are the nodes of the generation, theirs included.
    `folder` is its run folder and `join` the command by which a companion enters there, both empty where none can.
    `pipeline` is what a pipeline job has found out about its own.
    """

    phase: Phase
    generation: Count
    restarts: Count = 0
    nodes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=20000)] = ()
    ranks: Count = 0
    batch: Count = 0
    progress: Progress | None = None
    declined: Declined | None = None
    live: bool = False
    pipeline: Pipeline | None = None
    companions: Annotated[tuple[Lent, ...], msgspec.Meta(max_length=1000)] = ()
    folder: Text = ""
    join: Annotated[tuple[Text, ...], msgspec.Meta(max_length=32)] = ()
    notes: Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)] = ()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the job shall do next: enter `generation` with these nodes, batch (samples) and learning-rate factor.

    While `go` is False the job saves, lets its ranks exit and reports `left`; the nodes are then changed under it.
    Once `go` is True it starts the generation. `kind` is start, shrink, requeue, rebatch or grow. `lr_scale`
    multiplies the script's own learning rate (the one tuned for its base batch).

    A `live` order (only to a job whose `Sync` says live) is entered in memory: `go` is True from the beginning, ranks
    on nodes that are not named leave, ranks on the nodes of companions that are named join, and the job's next `Sync`
    with this generation in phase training says that it has happened. Until then nothing may be taken from the job.
    `lenders` are the companions (their job ids) that lend the nodes among these which are not the job's own.
    """

    generation: int
    kind: str
    go: bool
    batch: int
    lr_scale: float = 1.0
    nodes: tuple[str, ...] = ()
    reason: str = ""
    live: bool = False
    lenders: tuple[str, ...] = ()


class Loan(msgspec.Struct, frozen=True, kw_only=True):
    """A companion that is wanted for a job: submitted once for each (job, run, generation), by whom the site says.

    It inherits what the job has. `minutes` are those that the job has left, None where it has no limit; `gres` is
    Slurm's word for the GPUs of one node, empty where the site does not count them. `exclude` are the job's own nodes.
    """

    job_id: str
    restarts: int
    generation: int
    nodes: int
    minutes: int | None
    account: str = ""
    qos: str = ""
    partition: str = ""
    gres: str = ""
    constraint: str = ""
    reservation: str = ""
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    exclude: tuple[str, ...] = ()
    comment: str = ""
    folder: str = ""


class LoanAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a loan that was to be submitted: the companion's job id, or why Slurm refused it."""

    restarts: Count
    generation: Count
    job_id: Name = ""
    refused: Text = ""


class Loans(msgspec.Struct, frozen=True):
    """All companions that are wanted for the jobs of one user, as their agent hears it."""

    loans: tuple[Loan, ...] = ()


class Reply(msgspec.Struct, frozen=True):
    """The daemon's answer to a `Sync`: the standing order, or None to train on as it is.

    `loan` is a companion that this job shall submit from its batch step, where the site wants it so.
    """

    order: Order | None = None
    loan: Loan | None = None


class Told(msgspec.Struct, frozen=True):
    """An administrator's word to the daemon."""

    word: Control
