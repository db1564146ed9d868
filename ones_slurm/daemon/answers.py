"""What the daemon answers to commands, as JSON: each the whole truth at one moment, with its version."""

from typing import Literal

import msgspec

from ones_slurm.engine.records import Holding, MoveRow, Point, StoryLine
from ones_slurm.model.adoption import Control, Rung
from ones_slurm.model.plan import Action, Target


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One unfinished job as the daemon sees it. `done` is the fraction trained so far, None where it is not known.

    `move` is None while the job stays as it is, else the kind of change and how far it has come ("shrink:leaving").
    `reason` is why the policy gave it this size, or why it is not touched. `eta_s` is when it will be done at its
    present speed (Unix seconds), `next_nodes` and `next_batch` what the policy wants it to have instead of what it has:
    as advice, if `rung` is advise; of a job at observe nothing is said here. `gpu_types` are the GPUs that it holds by
    their type, where Slurm names one.
    """

    job_id: str
    partition: str
    name: str
    user: str
    state: str
    nodes: int
    node_list: tuple[str, ...] = ()
    gpus: int = 0
    batch: int = 0
    generation: int = 0
    restarts: int = 0
    elastic: bool = False
    wish: str | None = None
    done: float | None = None
    epoch: int | None = None
    step: int | None = None
    samples_per_s: float | None = None
    loss: float | None = None
    move: str | None = None
    reason: str = ""
    submit_s: float = 0.0
    start_s: float | None = None
    eta_s: float | None = None
    next_nodes: int | None = None
    next_batch: int | None = None
    rung: Rung = Rung.ACT
    gpu_types: dict[str, int] = {}


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that the caller may see, in the order of submission, at `taken_s` (Unix seconds; None: none yet).

    `gpu_types` are the types of GPUs that the cluster has, those of nodes that are down among them.
    """

    jobs: tuple[JobRow, ...]
    taken_s: float | None
    gpu_types: tuple[str, ...] = ()
    version: Literal[1] = 1


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """All that was ever decided about a job, done to it and told of it, oldest first.

    `moves`, `holdings` and `points` (how far it was over time) are what a report needs of it.
    """

    job_id: str
    story: tuple[StoryLine, ...]
    moves: tuple[MoveRow, ...] = ()
    holdings: tuple[Holding, ...] = ()
    points: tuple[Point, ...] = ()
    version: Literal[1] = 1


class PlanNow(msgspec.Struct, frozen=True, kw_only=True):
    """The latest plan, and the actions that it leads to (in observe mode: would lead to).

    `advice` are the sizes of jobs that may not be moved now; those of jobs at observe are for root and admins alone.
    """

    tick: int
    taken_s: float | None
    policy: str
    targets: tuple[Target, ...]
    actions: tuple[Action, ...]
    advice: tuple[Target, ...] = ()
    version: Literal[1] = 1


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon itself. `mode` is act or observe; `owner` is set when it manages one user's jobs only.

    `trouble` says why there is no newer tick (Slurm does not answer, say), empty when all is well.
    `control` is an administrator's standing word and `control_by` whose it is; `drained`: told to drain, and nothing is
    under way or on loan any more. `on_loan` counts jobs that hold companions' nodes, `rungs` jobs with a wish by their
    rung, and `quiet` is the quiet window of the site that it is now.
    """

    program: str
    mode: str
    policy: str
    seed: int
    interval_s: float
    started_s: float
    tick: int
    last_tick_s: float | None
    tick_took_s: float
    jobs: int
    elastic_jobs: int
    moves: int
    slurm_version: str = ""
    trouble: str = ""
    owner: str | None = None
    control: Control = Control.RUN
    control_by: str = ""
    control_since_s: float = 0.0
    drained: bool = False
    on_loan: int = 0
    rungs: dict[str, int] = {}
    quiet: str = ""
    version: Literal[1] = 1


class PageLink(msgspec.Struct, frozen=True, kw_only=True):
    """Where the live page lets one browser in as the caller, once and within `valid_s` seconds."""

    path: str
    valid_s: float
    version: Literal[1] = 1
