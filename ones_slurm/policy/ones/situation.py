"""The view as arrays: which jobs, which sizes, how fast at each, how much is left, what is held, what a move costs.

A *unit* is what is handed out: a GPU where single ones can be given, else a whole node. Row j of every array is job j.
"""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ones_slurm.model.cluster import ClusterView, JobState, JobView, Past, Speed
from ones_slurm.model.settings import Constants
from ones_slurm.model.wish import Bounds
from ones_slurm.policy.ones.constants import DEFAULTS
from ones_slurm.policy.ones.facts import Facts, Kind, bounded, credible, facts_of, kinds_of
from ones_slurm.policy.ones.goodput import (
    MAX_RAMP,
    UNKNOWN_S,
    Ints,
    Sizes,
    goodput_now,
    known_curve,
    unknown_curve,
    useful,
)
from ones_slurm.policy.ones.network import network_of
from ones_slurm.policy.ones.pipelined import pipeline_curve, pipeline_now
from ones_slurm.policy.ones.progress import curve_of, fit_predictor
from ones_slurm.policy.ones.rooms import pools_of, room_of
from ones_slurm.policy.ones.throughput import Floats, Network, fit_speeds
from ones_slurm.policy.sizes import claims_nodes, size_bounds

Bools = NDArray[np.bool_]

# What is left is at least this part of the GPU time that a job already had, so that one which always says "nearly done"
# is not served for ever (ours: honest jobs are that far only at their very end).
LEAST_LEFT = 0.02
# Sizes grow by whole nodes up to here and by an eighth beyond, which keeps the tables of large clusters small (ours).
DENSE_SIZES = 16
# More GPU time than any job ever had, in which all sums stay finite (ours: 30,000 years of one GPU).
MAX_SERVED_GPU_S = 1e12
# Samples a second of a job that holds GPUs on which no batch that is allowed would fit (ours: no division by zero).
LEAST_RATE = 1e-6
# Of a job that says nothing of its end: within a factor of e, two times in three (ours).
UNKNOWN_DOUBT = 1.0
# Weights beyond these are a slip of the pen (ours).
MIN_WEIGHT, MAX_WEIGHT = 1e-3, 1e3


@dataclasses.dataclass(frozen=True)
class Situation:
    """Jobs in the order of the view; J jobs, S sizes in rising order.

    `left` is in seconds times `goodput`, which is that of average GPUs; `usable` marks the sizes that a job may be
    given and that are worth their GPUs, `held` is in units and `held_rate` the goodput there. `move_s` is what a growth
    costs, `shrink_s` what becoming smaller does; `known` says that the job or some other of its kind was measured.
    """

    jobs: tuple[JobView, ...]
    whole_nodes: bool
    per_node: int
    pools: Ints  # (P,) units that may be given, of each kind of node
    may: Bools  # (J, P) where a job may run
    held_in: Ints  # (J, P) units that it holds there
    nodes_of: tuple[frozenset[str], ...]  # (P) the names of the nodes in each pool
    pace: Floats  # (P,) speed of the GPUs there, against that of `goodput`
    racks: Mapping[str, str]  # of each node
    units: Ints  # (S,)
    goodput: Floats  # (J, S)
    usable: Bools  # (J, S)
    batch: Floats  # (J, S)
    left: Floats  # (J,)
    held: Ints  # (J,)
    held_rate: Floats  # (J,)
    now_rate: Floats  # (J,) the goodput there with the batch in force
    known: Bools  # (J,)
    move_s: Floats  # (J,)
    shrink_s: Floats  # (J,)
    rebatch_s: Floats  # (J,)
    fixed: Bools  # (J,) may not be moved now
    least: Ints  # (J,) units that it must have: whole nodes are taken from a running job only down to its minimum
    base: Floats  # (J,) base batch
    weight: Floats  # (J,) how much the site lets it count
    waited_s: Floats  # (J,) without any unit, since it was submitted
    doubt: Floats  # (J,) standard deviation of the logarithm of what is left
    constants: Constants = DEFAULTS

    @property
    def capacity(self) -> int:
        """All units that may be given."""
        return int(self.pools.sum())

    @functools.cached_property
    def area(self) -> Floats:
        """(J,) the least GPU-seconds in which the rest could be done; the order of service."""
        best = np.where(self.usable, self.goodput / self.units, 0.0).max(axis=1, initial=0.0)
        return self.left / np.where(best > 0.0, best, np.maximum(self.held_rate, 1e-12) / np.maximum(self.held, 1))


def situation_of(view: ClusterView, *, history: bool = True, constants: Constants = DEFAULTS) -> Situation:
    """All that a decision needs, from a view; `history` lets ended jobs of the same kind stand in for measurements."""
    whole = not view.can_reallocate
    per_node = max((node.gpus for node in view.nodes), default=1) or 1
    room = room_of(view)
    usable = {node.name for node in view.nodes if node.usable}
    jobs = tuple(job for job in view.jobs if job.elastic and claims_nodes(job))
    pools, may, held_in, nodes_of = pools_of(room, jobs, by_type=not whole)
    capacity = int(max(pools.sum(), 1))
    bounds = [_bounds(job, view, capacity) for job in jobs]
    held = held_in.sum(axis=1)
    further = {int(n) for n in held if n}.union(*map(_marks, bounds))
    units = _grid(1 if whole else per_node, capacity, further)
    kinds = kinds_of(view.past) if history else {}
    past = view.past if history else ()
    frame = _Frame(units, 0 if whole else per_node, past, network_of(past))
    rows = [_row(job, frame, int(held[j]), bounds[j], kinds.get((job.user, job.recipe))) for j, job in enumerate(jobs)]
    shape = (len(jobs), len(units))
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * 9
    goodput, batch = (np.array(columns[at]).reshape(shape) for at in (0, 2))
    allowed = _allowed(np.array(units), jobs, bounds, np.array(columns[1]), whole=whole)
    allowed = useful(np.where(allowed, goodput, 0.0))
    left, rate, now, known, base, doubt = (np.array(columns[at]) for at in range(3, 9))
    pace = _paces(view, nodes_of, frame.network)
    rate = rate * np.where(held > 0, pace[held_in.argmax(axis=1)], 1.0)
    return Situation(
        jobs=jobs,
        whole_nodes=whole,
        per_node=per_node,
        pools=pools,
        may=may,
        held_in=held_in,
        nodes_of=nodes_of,
        pace=pace,
        racks={node.name: node.rack for node in view.nodes},
        units=np.array(units),
        goodput=goodput,
        usable=allowed,
        batch=batch,
        left=np.maximum(left, _least_left(view.now_s, jobs) * rate / np.maximum(held, 1)),
        held=held,
        held_rate=rate,
        now_rate=now,
        known=known.astype(bool),
        move_s=np.array([max(_growth_s(job, view), 0.0) for job in jobs]),
        rebatch_s=np.full(len(jobs), max(view.pauses.get("rebatch", view.pause_s), 0.0)),
        shrink_s=np.full(len(jobs), max(view.pauses.get("shrink", view.pause_s), 0.0)),
        # A job that spans pools is left alone, for sizes are chosen within one.
        fixed=np.array([_is_fixed(job, view, usable) for job in jobs], bool) | ((held_in > 0).sum(axis=1) > 1),
        least=_least(allowed, np.array(units), held) if whole else np.zeros(len(jobs), int),
        base=base,
        weight=np.array([bounded(job.weight, MIN_WEIGHT, MAX_WEIGHT) or 1.0 for job in jobs]),
        waited_s=np.array([_waited_s(job, view.now_s) for job in jobs]),
        doubt=doubt,
        constants=constants,
    )


def _growth_s(job: JobView, view: ClusterView) -> float:
    """A job that is lent nodes while it trains pauses for the switch alone."""
    return view.pauses.get("grow", view.pause_s) if job.can_grow else view.pause_s


class _Frame(NamedTuple):
    """What the rows of all jobs share; `per_node` is 0 where units are nodes."""

    units: tuple[int, ...]
    per_node: int
    past: tuple[Past, ...]
    network: Network


def _row(
    job: JobView, frame: _Frame, held: int, bounds: Bounds, kind: Kind | None
) -> tuple[Floats, float, Floats, float, float, float, bool, float, float]:
    """Goodput by size, the most GPUs for now, batch by size, what is left, goodput at the held size and with the batch
    in force there, known, base batch, doubt."""
    units, per_node, past_jobs, _ = frame
    facts = facts_of(job, kind)
    past = kind.speeds if kind is not None else ()
    sizes = _sizes(units, max(job.gpus_per_node, 1), per_node)
    # at least the smallest size that it allows, or it would never start
    first = max(per_node, sizes[0][0] * max(bounds.low, 1))
    at = units.index(held) if held else 0
    speeds = facts.speeds or _from_progress(job, facts)
    if job.pipeline is not None and job.pipeline.steps:
        goodput, batch = pipeline_curve(facts, job.pipeline, sizes)
        now = pipeline_now(facts, job.pipeline, job.gpus, job.batch)
        most = max(MAX_RAMP * max((speed.gpus for speed in facts.speeds), default=0), first)
        left, doubt = _left(job, facts, past_jobs, float(goodput.max(initial=0.0)))
        rate = max(float(goodput[at]), LEAST_RATE) if held else 0.0
        return goodput, float(most), batch, left, rate, now, True, facts.limits.base, doubt
    if not speeds and not past:
        goodput, batch = unknown_curve(sizes), np.full(len(units), float(job.batch))
        left = max(UNKNOWN_S, _served_gpu_s(job))
        rate = goodput[at] if held else 0.0
        return goodput, float(first), batch, left, rate, rate, False, facts.limits.base, 0.0
    model = fit_speeds(speeds, past, frame.network)
    most = max(MAX_RAMP * model.most_gpus, first)
    goodput, batch = known_curve(facts, model, sizes)
    left, doubt = _left(job, facts, past_jobs, float(goodput.max(initial=0.0)))
    rate = max(float(goodput[at]), LEAST_RATE) if held else 0.0
    now = rate
    if held and job.batch and not per_node:  # elsewhere another batch is no move of its own
        now = goodput_now(facts, model, (sizes[0][at], sizes[1][at]), float(job.batch))
    return goodput, float(most), batch, left, rate, now, True, facts.limits.base, doubt


def _left(job: JobView, facts: Facts, past: tuple[Past, ...], fastest: float) -> tuple[float, float]:
    """(samples to come, doubt): as the job says, or by its curve where it says nothing, or as many as are done."""
    if facts.left is not None:
        return facts.left, 0.0
    curve = curve_of(job.progress) if job.progress is not None else None
    if curve is None:
        return max(facts.done, UNKNOWN_S * fastest), UNKNOWN_DOUBT
    share = fit_predictor(past).share(curve)
    return share.left(facts.done), share.doubt


def _from_progress(job: JobView, facts: Facts) -> tuple[Speed, ...]:
    """A job that reports only samples a second was measured at least at the size that it has now."""
    rate = job.progress.samples_per_s if job.progress is not None else 0.0
    gpus, batch = job.gpus or len(job.nodes), job.batch or int(facts.limits.base)
    if not gpus or not 0.0 < rate < 1e12:
        return ()
    local = max(batch // gpus, 1)
    return credible((Speed(max(len(job.nodes), 1), gpus, local, batch / rate, 0.0),))


def _paces(view: ClusterView, nodes_of: Sequence[frozenset[str]], network: Network) -> Floats:
    """(P,) where a pool holds GPUs of one type; pools of mixed ones count as average."""
    types = {node.name: node.gpu_type for node in view.nodes}
    found = [{types[name] for name in names} for names in nodes_of]
    return np.array([network.pace(one.pop()) if len(one) == 1 else 1.0 for one in found] or [1.0])


def _bounds(job: JobView, view: ClusterView, capacity: int) -> Bounds:
    if not view.can_reallocate:
        bounds = size_bounds(job, view)
        return Bounds(bounds.low, min(bounds.high, capacity), bounds.step)
    if job.wish is None or job.wish.gpus is None:
        return Bounds(job.asked_gpus or 1, job.asked_gpus or 1)
    return Bounds(job.wish.gpus.low, min(job.wish.gpus.high, capacity))


def _allowed(units: Ints, jobs: Sequence[JobView], bounds: Sequence[Bounds], most: Floats, *, whole: bool) -> Bools:
    """(J, S) sizes within the bounds of each job and up to the most GPUs that it may have for now."""
    if not jobs:
        return np.zeros((0, len(units)), bool)
    low, high, step = np.array([(one.low, one.high, one.step) for one in bounds]).T[:, :, None]
    each = np.array([max(job.gpus_per_node, 1) if whole else 1 for job in jobs])[:, None]
    within: Bools = (units >= low) & (units <= high) & ((units - low) % step == 0) & (units * each <= most[:, None])
    return within


def _marks(bounds: Bounds) -> set[int]:
    """Sizes that must be in the table: the smallest, the largest, and the first ones in steps of more than one."""
    steps = range(bounds.low, bounds.high + 1, bounds.step)[:DENSE_SIZES] if bounds.step > 1 else ()
    return {bounds.low, bounds.high, *steps}


def _is_fixed(job: JobView, view: ClusterView, usable: Collection[str]) -> bool:
    """Also on a node that is drained: the job may end there, and what it holds is not to be given to others."""
    stuck = view.can_reallocate and bool(job.allocation) and not job.requeueable
    drained = any(name not in usable for name in job.nodes)
    return stuck or drained or job.move is not None or job.state not in (JobState.PENDING, JobState.RUNNING)


def _least(allowed: Bools, units: Ints, held: Ints) -> Ints:
    """(J,) the smallest size of each running job."""
    smallest = np.where(allowed & (units <= held[:, None]), units, held[:, None]).min(axis=1, initial=1 << 40)
    return np.where(held > 0, smallest, 0)


def _served_gpu_s(job: JobView, now_s: float | None = None) -> float:
    present = (
        job.gpus * max((now_s or 0.0) - job.start_s, 0.0) if now_s is not None and job.start_s is not None else 0.0
    )
    return min((bounded(job.served_gpu_s, 0.0, MAX_SERVED_GPU_S) or 0.0) + present, MAX_SERVED_GPU_S)


def _waited_s(job: JobView, now_s: float) -> float:
    """Its life less the longest that it can have run for, to be served as much as it was: on the smallest size."""
    ran_s = max(now_s - job.start_s, 0.0) if job.start_s is not None and (job.nodes or job.allocation) else 0.0
    least = min((speed.gpus for speed in job.speeds), default=1)
    return min(max(now_s - job.submit_s - ran_s - _served_gpu_s(job) / max(least, 1), 0.0), MAX_SERVED_GPU_S)


def _least_left(now_s: float, jobs: Sequence[JobView]) -> Floats:
    return LEAST_LEFT * np.array([_served_gpu_s(job, now_s) for job in jobs])


def _grid(per_node: int, capacity: int, further: set[int]) -> tuple[int, ...]:
    """Sizes in units: powers of two within a node, then whole nodes, in steps that grow where there are many."""
    sizes = {1}
    while max(sizes) * 2 < per_node:
        sizes.add(max(sizes) * 2)
    nodes = 1
    while nodes * per_node <= capacity:
        sizes.add(nodes * per_node)
        nodes += 1 if nodes < DENSE_SIZES else nodes // 8
    sizes.add(max(capacity // per_node * per_node, 1))
    return tuple(sorted(size for size in sizes | further if size >= 1))


@functools.lru_cache(maxsize=256)
def _sizes(units: tuple[int, ...], gpus_per_unit: int, per_node: int) -> Sizes:
    """(GPUs, nodes) of every size; `per_node` is 0 where units are nodes."""
    if not per_node:
        return tuple(unit * gpus_per_unit for unit in units), units
    return units, tuple(-(-unit // per_node) for unit in units)
