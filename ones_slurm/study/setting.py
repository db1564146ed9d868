"""What a run is made of: a trace, a cluster, costs, and a policy by name."""

import itertools
import math
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.records import Run
from ones_slurm.model.cluster import ClusterView, NodeView
from ones_slurm.model.errors import UsageError
from ones_slurm.model.plan import Plan
from ones_slurm.model.settings import Costs, Moves, Site
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.model.sockets import Policy
from ones_slurm.policy.peers.partitions import PerPartition
from ones_slurm.policy.peers.srtf import Srtf
from ones_slurm.policy.registry import PEERS, POLICIES, policy_named
from ones_slurm.sim.cluster import ImaginedCluster, gpus_for
from ones_slurm.sim.faults import Outage, draw_outages
from ones_slurm.sim.job import Submission
from ones_slurm.sim.nodes import NodeKind, node_views, speeds_of
from ones_slurm.sim.shared import SharedCluster
from ones_slurm.sim.trace import Row
from ones_slurm.sim.whole import WholeNodeCluster
from ones_slurm.sim.workload import Choices, submissions
from ones_slurm.study.figures import Figures, JobFigures, figures, job_figures
from ones_slurm.study.run import run

# Policies that choose sizes themselves; under any other a job has the size that was asked for.
SIZING = frozenset({"ones", "ones-paper", "psrpt", "pollux", "optimus", "elastic-dp", "equal"})
# Policies that only have something to do when a job comes or goes; the others are asked by the clock as well.
BY_EVENTS = frozenset({"slurm", "fifo", "strict-fifo", "first-fit", "easy", "srtf", "consolidated"})
# Policies that say how many nodes, and leave it to the batch system which.
WHOLE_NODES_ONLY = frozenset({"slurm", "fifo", "equal"})


class LeaveAlone:
    """Slurm by itself: nobody decides anything."""

    name = "slurm"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (nothing to decide)
        return Plan()


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One imagined cluster and how it is run.

    `interval_s` is the time between decisions. `by_clock` lets events count only at its multiples, as in the published
    simulators. `whole_nodes` imagines Slurm, with jobs that start by themselves; else any job can have any GPUs.
    `nodes` are so many equal ones with `gpus_per_node`, or nodes of several kinds; a job that names no partition is
    in the first one.
    """

    nodes: int | tuple[NodeKind, ...] = 16
    gpus_per_node: int = 4
    interval_s: float = 60.0
    by_clock: bool = True
    whole_nodes: bool = False
    costs: Costs = Costs(save_s=0.0, rebatch_s=0.0)
    moves: Moves = Moves()
    profiles: pathlib.Path | None = None
    requeueable: bool = True
    seed: int = 1
    mean_up_s: float = 0.0
    mean_down_s: float = 3600.0
    contention: float = 0.0

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(kind.count * kind.gpus for kind in self.kinds)

    @property
    def kinds(self) -> tuple[NodeKind, ...]:
        """What the cluster is made of."""
        if isinstance(self.nodes, int):
            return (NodeKind(count=self.nodes, gpus=self.gpus_per_node),)
        return self.nodes

    @property
    def default_partition(self) -> str:
        """Where jobs go that name none: the first partition of the first nodes; empty where there are none."""
        return next((name for kind in self.kinds for name in kind.partitions), "")

    def gpus_for(self, partition: str) -> int:
        """All GPUs that a job of that partition could ever have."""
        return gpus_for(partition, node_views(self.kinds))

    def in_partitions(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, those that name no partition in the default one."""
        there = self.default_partition
        return [row if row.partition or not there else msgspec.structs.replace(row, partition=there) for row in rows]


def setting_of_site(site: Site, *, interval_s: float | None = None) -> Setting:
    """A Slurm with the costs and moves of that site, which decides as often unless `interval_s` says otherwise."""
    return Setting(
        whole_nodes=True,
        by_clock=False,
        interval_s=interval_s or site.engine.interval_s,
        costs=site.costs,
        moves=site.moves,
        seed=site.policy.seed,
    )


class Result(msgspec.Struct, frozen=True):
    """One run: its figures, and the cluster as it is at the end, with every job's spans."""

    figures: Figures
    jobs: tuple[JobFigures, ...]
    cluster: ImaginedCluster


def policy_names() -> list[str]:
    """Every policy that can be simulated."""
    return sorted({*POLICIES, *PEERS, "slurm", "srtf"})


def simulate(
    rows: Sequence[Row],
    policy: str,
    setting: Setting,
    *,
    journal: Journal | None = None,
    told: Callable[[int], None] | None = None,
) -> Result:
    """Runs a trace to its end under one policy. Raises `UsageError` for what cannot be run."""
    choices = Choices(
        profiles=setting.profiles,
        elastic=policy.partition(" ")[0] in SIZING,
        largest=setting.gpus,
        requeueable=setting.requeueable,
    )
    work = submissions(setting.in_partitions(rows), choices)
    return simulate_jobs(work, policy, setting, node_views(setting.kinds), journal=journal, told=told)


def simulate_jobs(
    work: Sequence[Submission],
    policy: str,
    setting: Setting,
    nodes: Sequence[NodeView],
    *,
    journal: Journal | None = None,
    decides: Policy | None = None,
    told: Callable[[int], None] | None = None,
) -> Result:
    """As `simulate`, for jobs and nodes that are there; `decides` is the policy of that name, if not the usual one."""
    whole = setting.whole_nodes
    if policy in WHOLE_NODES_ONLY and not whole:
        raise UsageError(f"policy {policy} counts whole nodes", hint="give --whole-nodes, or strict-fifo or first-fit")
    if whole and (policy in PEERS or policy == "srtf"):
        raise UsageError(f"policy {policy} hands out single GPUs", hint="leave out --whole-nodes; or equal, fifo, ones")
    if policy in PEERS or policy == "srtf":
        _check_apart({node.partitions for node in nodes}, policy)
    kind: type[ImaginedCluster] = WholeNodeCluster if whole else SharedCluster
    more: dict[str, Any] = {"allowed": setting.moves} if whole else {"contention": setting.contention}
    more["speeds"] = speeds_of(setting.kinds)
    every_s = setting.interval_s if setting.by_clock else 0.0
    outages = _outages(work, setting, nodes)
    cluster = kind(nodes, work, setting.costs, every_s=every_s, outages=outages, **more)
    chosen = decides or _policy(policy, cluster)
    if journal is not None:
        journal.begin_run(Run(policy=policy, seed=setting.seed, mode="imagined"), cluster.now())
    decisions = run(
        cluster,
        chosen,
        interval_s=math.inf if policy in BY_EVENTS and not whole else setting.interval_s,
        seed=setting.seed,
        journal=journal,
        settings=EngineSettings(interval_s=setting.interval_s),
        told=told,
    )
    jobs = job_figures(cluster)
    return Result(figures(policy, cluster, jobs, decisions=decisions), jobs, cluster)


def _policy(name: str, cluster: ImaginedCluster) -> Policy:
    if name == "slurm":
        return LeaveAlone()
    return PerPartition(Srtf(cluster.remaining_s)) if name == "srtf" else policy_named(name)


def _check_apart(pools: Collection[tuple[str, ...]], policy: str) -> None:
    """Raises `UsageError` if some nodes are in one partition of several, and others in all of these or in none."""
    for one, other in itertools.combinations(sorted(pools), 2):
        if not (one and other) or not set(one).isdisjoint(other):
            raise UsageError(
                f"policy {policy} needs partitions that share no nodes, not {'+'.join(one) or 'none'} and "
                f"{'+'.join(other) or 'none'}",
                hint="put each node in one partition, or take ones or psrpt",
            )


def _outages(work: Sequence[Submission], setting: Setting, nodes: Sequence[NodeView]) -> tuple[Outage, ...]:
    if not setting.mean_up_s:
        return ()
    return draw_outages(
        [node.name for node in nodes],
        horizon_s=2 * max((job.submit_s for job in work), default=0.0) + 86400.0,
        mean_up_s=setting.mean_up_s,
        mean_down_s=setting.mean_down_s,
        seed=setting.seed,
    )
