"""ONES as published (arXiv 2108.03645): its operators, its score, its limits and its rule of deployment.

For comparison only. It differs where the artifact keeps state between generations: the population begins anew at each
decision from what runs, and runs through `GENERATIONS`; see also `limits`. Its cost of a schedule S is

    sum over jobs in S of  GPUs · samples done · (1/ρ − 1) / throughput,   one draw of ρ for each job and generation
"""

from collections.abc import Sequence

import numpy as np

from ones_slurm.model.cluster import Allocation, ClusterView, JobState, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.policy.ones import genome
from ones_slurm.policy.ones.facts import credible
from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.limits import LEAST_EPOCHS, batch_at_gpus, epochs_done, known_curve, limits_of
from ones_slurm.policy.ones.progress import fit_predictor
from ones_slurm.policy.ones.throughput import Floats
from ones_slurm.policy.sizes import base_batch, told

POPULATION = 16
GENERATIONS = 10
SWITCH_EPOCHS = 1.0  # the artifact's δ: a switch waits until all jobs that it moves have run so long
TINY = 1e-12


class OnesPaper:
    """Needs a cluster that hands out single GPUs; elsewhere it has no opinion."""

    name = "ones-paper"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """Some generations, then a full switch, or only the starts that disturb nobody."""
        jobs = [job for job in view.jobs if _takes_part(job)]
        slots = _slots(view)
        if not view.can_reallocate or not jobs or not slots:
            return Plan()
        now = _genes_now(jobs, slots)
        limits = limits_of(jobs, len(slots), view.now_s)
        chosen = _evolve(view, jobs, now, np.array([(one.now, one.prepared) for one in limits]), rng)
        laid = genome.reorder(genome.counts_of(chosen[None], len(jobs))[0], now)
        given = laid if _may_switch(view, jobs, now, laid) else _only_starts(jobs, now, laid)
        return Plan(tuple(_target(job, at, given, slots) for at, job in enumerate(jobs)))


def _evolve(view: ClusterView, jobs: Sequence[JobView], now: Ints, limits: Ints, rng: np.random.Generator) -> Ints:
    curves = [known_curve(job) for job in jobs]
    predictor = fit_predictor(view.past)
    known = np.array([curve is not None and curve.epochs >= LEAST_EPOCHS for curve in curves])
    shares = [predictor.share(curve) if curve is not None else None for curve in curves]
    rates = np.stack([_throughput(job, len(now)) for job in jobs])  # (J, N + 1)
    limit, prepared = limits[:, 0], limits[:, 1]
    done = np.array([curve.samples if curve is not None else 0.0 for curve in curves])
    fresh = [at for at, job in enumerate(jobs) if not job.gpus and not known[at]]
    population = np.repeat(now[None], POPULATION, axis=0)
    for _ in range(GENERATIONS):
        drawn = np.array([rng.beta(share.a, share.b) if share is not None else 1.0 for share in shares])
        left = np.where(known, done * (1.0 / (drawn + TINY) - 1.0), 0.0)
        executed = [at for at in np.argsort(left / rates[:, 1], kind="stable").tolist() if at not in set(fresh)]
        parents = genome.refresh(population, limit)
        children = genome.crossover(parents, limit, rng)
        mutants = genome.mutate(parents, ~known, rng)
        every = genome.pad(np.concatenate([parents, children, mutants]), fresh, executed, limit, prepared)
        counts = genome.counts_of(every, len(jobs))
        cost = (counts * left / rates[np.arange(len(jobs))[None], counts]).sum(axis=1)
        population = genome.select(every, cost, POPULATION)
    best: Ints = population[0]
    return best


def _throughput(job: JobView, gpus: int) -> Floats:
    """(GPUs + 1,) samples a second: the mean of what was measured at a size, straight lines between, through (0, 0)."""
    measured: dict[int, list[float]] = {}
    for speed in credible(job.speeds):
        measured.setdefault(speed.gpus, []).append(speed.local_batch * speed.gpus / speed.step_s)
    sizes = sorted(measured)
    rates = [float(np.mean(measured[size][-5:])) for size in sizes]
    if not sizes:
        return np.arange(gpus + 1.0) + TINY
    count = np.arange(gpus + 1.0)
    line = np.interp(count, [0, *sizes], [0.0, *rates])
    last, before = sizes[-1], (sizes[-2], rates[-2]) if len(sizes) > 1 else (0, 0.0)
    slope = (rates[-1] - before[1]) / (last - before[0])
    rate: Floats = np.maximum(np.where(count > last, rates[-1] + slope * (count - last), line), TINY)
    return rate


def _takes_part(job: JobView) -> bool:
    ready = job.state in (JobState.PENDING, JobState.RUNNING) and not job.held
    return job.elastic and job.move is None and ready and job.wish is not None and job.wish.gpus is not None


def _slots(view: ClusterView) -> list[str]:
    """The node of each GPU that may be given, in node order."""
    others = dict.fromkeys((node.name for node in view.nodes), 0)
    for job in view.jobs:
        if not _takes_part(job):
            for name, gpus in job.allocation:
                others[name] = others.get(name, 0) + gpus
    return [node.name for node in view.nodes if node.usable for _ in range(node.gpus - others[node.name])]


def _genes_now(jobs: Sequence[JobView], slots: Sequence[str]) -> Ints:
    genes = np.full(len(slots), genome.IDLE)
    free: dict[str, list[int]] = {}
    for at, name in enumerate(slots):
        free.setdefault(name, []).append(at)
    for number, job in enumerate(jobs):
        for name, gpus in job.allocation:
            for _ in range(gpus):
                if free.get(name):
                    genes[free[name].pop(0)] = number
    return genes


def _may_switch(view: ClusterView, jobs: Sequence[JobView], now: Ints, laid: Ints) -> bool:
    """Whether every running job that would change has run for an epoch since it was last placed."""
    for at, job in enumerate(jobs):
        if job.gpus and not np.array_equal(now == at, laid == at):
            curve = known_curve(job)
            if curve is None or job.start_s is None or job.progress is None:
                return False
            run = (view.now_s - job.start_s) * max(job.progress.samples_per_s, 0.0)
            if run < SWITCH_EPOCHS * curve.samples / curve.epochs:
                return False
    return True


def _only_starts(jobs: Sequence[JobView], now: Ints, laid: Ints) -> Ints:
    """Waiting jobs whose GPUs are all idle start; nothing else changes."""
    given = now.copy()
    for at, job in enumerate(jobs):
        mine = laid == at
        if not job.gpus and mine.any() and (given[mine] == genome.IDLE).all():
            given[mine] = at
    return given


def _target(job: JobView, at: int, given: Ints, slots: Sequence[str]) -> Target:
    allocation: dict[str, int] = {}
    for slot in np.flatnonzero(given == at).tolist():
        allocation[slots[slot]] = allocation.get(slots[slot], 0) + 1
    assert job.wish is not None
    assert job.wish.gpus is not None
    gpus = sum(allocation.values())
    if gpus > job.wish.gpus.high or gpus < job.wish.gpus.low:  # the published search knows nothing of wishes
        allocation = _clamped(allocation, job.wish.gpus.low, job.wish.gpus.high)
        gpus = sum(allocation.values())
    base = max(base_batch(job), 1)
    largest = job.wish.batch.high if job.wish.batch is not None else base
    batch, lr_scale = batch_at_gpus(base, largest, gpus) if gpus and job.wish.batch is not None else (0, 1.0)
    held: Allocation = tuple(allocation.items())
    return Target(
        job_id=job.job_id,
        nodes=len(held),
        batch=batch if not gpus or job.wish.batch is None else job.wish.batch.clamp(batch),
        lr_scale=lr_scale,
        allocation=held,
        reason=f"{gpus} GPUs in the cheapest schedule of {GENERATIONS} generations" if gpus else "waits its turn",
        numbers=told(size=gpus, held=job.gpus, epochs=epochs_done(job)),
    )


def _clamped(allocation: dict[str, int], low: int, high: int) -> dict[str, int]:
    """No more GPUs than wished for; none at all where they are fewer."""
    kept: dict[str, int] = {}
    for name, gpus in allocation.items():
        take = min(gpus, high - sum(kept.values()))
        if take:
            kept[name] = take
    return kept if sum(kept.values()) >= low else {}
