"""Pollux: sizes, places and batches that maximise goodput, found by genetic search (Qiao et al., OSDI 2021, section 4).

An individual is a matrix of GPUs by job and node. Its fitness is the power mean (p = -1) of the jobs' speed-ups over a
fair share, where a job that would be moved counts less the younger it is and the more it was moved. A job may have
twice the GPUs that it was measured with. No two jobs that span nodes share a node.

Ours: a population of 48 over 24 generations, begun from the present allocations, with a second mutation that places
one job anew and whole; the original needs 100 over 100 for the same result.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.policy.peers.goodput import Table, limits_of, table_of
from ones_slurm.policy.peers.placing import free_gpus, movable, unmoved

POPULATION = 48
GENERATIONS = 24
# Seconds that a move costs in the fitness (the paper's delta), and the least speed-up, of a job without GPUs.
MOVE_S = 30.0
FLOOR = 0.01

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Problem(NamedTuple):
    """What the search needs, by job (J) and node (N)."""

    room: Ints  # (N,) GPUs that may be given
    least: Ints  # (J,) GPUs that a job may have, if any
    most: Ints  # (J,)
    now: Ints  # (J, N) what they hold
    speedup: Floats  # (J, 2, G + 1) over a fair share, by whether it spans nodes and by GPUs
    moved: Floats  # (J,) factor on the speed-up of a job that is moved


class Pollux:
    """Co-adaptive allocation by goodput."""

    name = "pollux"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """The fittest matrix of the last generation, and for each job the batch size that goes with it."""
        jobs = movable(view)
        if not jobs or not free_gpus(view, ()):
            return Plan()
        names, problem, tables = _pose(view, jobs)
        best = search(problem, rng)
        return Plan(tuple(_target(job, names, row, table) for job, row, table in zip(jobs, best, tables, strict=True)))


def search(problem: Problem, rng: np.random.Generator) -> Ints:
    """The fittest (J, N) matrix found; at least as fit as what there is now."""
    states = np.repeat(problem.now[None], POPULATION, axis=0)
    states[1:] = repair(problem, _mutated(problem, states[1:], rng), rng)
    worth = fitness(problem, states)
    for _ in range(GENERATIONS):
        children = _crossed(problem, states, rng)
        children[::4] = _mutated(problem, children[::4], rng)
        children[1::2] = _replaced(problem, children[1::2], rng)
        children = repair(problem, children, rng)
        states = np.concatenate([states, children])
        worth = np.concatenate([worth, fitness(problem, children)])
        kept = _fittest(worth)
        states, worth = states[kept], worth[kept]
    return np.asarray(states[0])


def _fittest(worth: Floats) -> Ints:
    """The best first, and none twice: individuals of equal fitness are nearly always the same one."""
    _, places = np.unique(-worth, return_index=True)
    return np.asarray(places[:POPULATION])


def fitness(problem: Problem, states: Ints) -> Floats:
    """Power mean of the speed-ups, (K,)."""
    gpus = states.sum(axis=2)
    spans = (np.count_nonzero(states, axis=2) > 1).astype(np.int64)
    speedup = problem.speedup[np.arange(len(problem.most))[None, :], spans, gpus]
    moved = (states != problem.now[None]).any(axis=2)
    speedup = np.where(moved, speedup * problem.moved, speedup)
    return np.asarray(1 / np.mean(1 / np.maximum(speedup, FLOOR), axis=1))


def repair(problem: Problem, states: Ints, rng: np.random.Generator) -> Ints:
    """Cuts each state down to one that is possible; who has to give way is left to chance."""
    many, jobs, _ = states.shape
    within = np.minimum(np.cumsum(states, axis=2), problem.most[None, :, None])
    states = np.diff(within, axis=2, prepend=0)
    order = rng.random((many, jobs)).argsort(axis=1)[:, :, None]
    states = np.take_along_axis(states, order, axis=1)
    spans = (np.count_nonzero(states, axis=2) > 1)[:, :, None] & (states > 0)
    states = np.where(spans & (np.cumsum(spans, axis=1) > 1), 0, states)
    within = np.minimum(np.cumsum(states, axis=1), problem.room[None, None, :])
    states = np.diff(within, axis=1, prepend=0)
    repaired = np.empty_like(states)
    np.put_along_axis(repaired, np.broadcast_to(order, states.shape), states, axis=1)
    return np.where(repaired.sum(axis=2, keepdims=True) < problem.least[None, :, None], 0, repaired)


def _mutated(problem: Problem, states: Ints, rng: np.random.Generator) -> Ints:
    """Each number changes with probability 1/N to any that the node allows (the paper's mutation)."""
    drawn = rng.integers(0, problem.room[None, None, :] + 1, states.shape)
    return np.asarray(np.where(rng.random(states.shape) < 1 / len(problem.room), drawn, states))


def _replaced(problem: Problem, states: Ints, rng: np.random.Generator) -> Ints:
    """Two jobs of each state give up what they have and are placed anew, so that GPUs can go from one to the other."""
    rows = np.arange(len(states))
    states = states.copy()
    first = rng.integers(0, states.shape[1], len(states))
    second = rng.integers(0, states.shape[1], len(states))
    had = states.sum(axis=2)
    states[rows, first] = states[rows, second] = 0
    for chosen in (first, second):
        drawn = np.where(
            rng.random(len(states)) < 0.5,
            np.ceil(problem.most[chosen] * rng.random(len(states))),
            np.rint(np.maximum(had[rows, chosen], 1) * 2 ** rng.normal(0.0, 0.7, len(states))),
        )
        most = problem.most[chosen]
        wanted = np.clip(drawn, np.minimum(problem.least[chosen], most), most).astype(np.int64)
        states[rows, chosen] = 0  # both may be the same job
        free = np.maximum(problem.room[None, :] - states.sum(axis=1), 0)  # (K, N)
        states[rows, chosen] = _placed(free, wanted, rng)
    return states


def _placed(free: Ints, wanted: Ints, rng: np.random.Generator) -> Ints:
    """So many GPUs for each state, (K, N): on the node where they fit most tightly, else on the emptiest ones."""
    most = int(free.max()) + 1
    snug = np.where(free >= wanted[:, None], most - free, 0)
    order = np.argsort(-(snug * most + free) - 0.5 * rng.random(free.shape), axis=1)
    given = np.minimum(np.cumsum(np.take_along_axis(free, order, axis=1), axis=1), wanted[:, None])
    placed = np.zeros_like(free)
    np.put_along_axis(placed, order, np.diff(given, axis=1, prepend=0), axis=1)
    return placed


def _crossed(problem: Problem, states: Ints, rng: np.random.Generator) -> Ints:
    """Children take each job's row from one of two parents; every third has what there is now as one of them."""
    parents = rng.integers(0, len(states), (2, POPULATION))
    other = states[parents[1]]
    other[::3] = problem.now
    first = rng.random((POPULATION, states.shape[1])) < 0.5
    return np.asarray(np.where(first[:, :, None], states[parents[0]], other))


def _pose(view: ClusterView, jobs: Sequence[JobView]) -> tuple[list[str], Problem, list[Table | None]]:
    room = free_gpus(view, unmoved(view, jobs))
    names = list(room)
    places = {name: place for place, name in enumerate(names)}
    total = sum(room.values())
    now = np.zeros((len(jobs), len(names)), np.int64)
    for row, job in enumerate(jobs):
        for name, gpus in job.allocation:
            if name in places:
                now[row, places[name]] = gpus
    tables = [table_of(job, limits, total) if (limits := limits_of(job)) is not None else None for job in jobs]
    fair = max(-(-total // len(jobs)), 1)
    speedup = np.stack([_speedup(table, fair, total) for table in tables])
    problem = Problem(
        room=np.array([*room.values()], dtype=np.int64),
        least=np.array([_least_gpus(job) for job in jobs]),
        most=np.array([_most_gpus(job, total) for job in jobs]),
        now=now,
        speedup=speedup,
        moved=np.array([_moved_factor(job, view.now_s) for job in jobs]),
    )
    return names, problem, tables


def _speedup(table: Table | None, fair: int, total: int) -> Floats:
    """Over the fair share, which counts as if it were on one node (as in the authors' code)."""
    if table is None:
        return np.tile(np.arange(total + 1) / fair, (2, 1))
    base = table.goodput[0, fair]
    return table.goodput / base if base > 0 else table.goodput


def _most_gpus(job: JobView, total: int) -> int:
    """Twice of what was measured, within the wish and the smallest batch that makes sense on so many."""
    tried = max((speed.gpus for speed in job.speeds), default=0)
    most = min(max(2 * tried, _least_gpus(job)), total)
    if job.wish is not None and job.wish.gpus is not None:
        most = min(most, job.wish.gpus.high)
    limits = limits_of(job)
    return min(most, limits.largest // limits.min_local) if limits is not None else most


def _least_gpus(job: JobView) -> int:
    return job.wish.gpus.low if job.wish is not None and job.wish.gpus is not None else 1


def _moved_factor(job: JobView, now_s: float) -> float:
    """What is left of a speed-up after one more pause, seen over the job's life so far; a waiting job pays nothing."""
    if not job.allocation:
        return 1.0
    age_s = max(now_s - job.submit_s, 0.0)
    return max(age_s - job.restarts * MOVE_S, 0.0) / (age_s + MOVE_S)


def _target(job: JobView, names: Sequence[str], row: Ints, table: Table | None) -> Target:
    allocation = tuple((names[int(place)], int(row[place])) for place in np.flatnonzero(row))
    gpus = int(row.sum())
    if sorted(allocation) == sorted(job.allocation):
        allocation = job.allocation
    batch = int(table.batch[int(len(allocation) > 1), gpus]) if table is not None and gpus else 0
    return Target(
        job_id=job.job_id,
        nodes=len(allocation),
        allocation=allocation,
        batch=batch,
        reason="the fittest of all allocations tried",
        numbers={"gpus": float(gpus)},
    )
