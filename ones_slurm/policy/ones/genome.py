"""The published genome of ONES (arXiv 2108.03645) and its operators: one gene a GPU, holding a job's number or IDLE.

`genes` are (K, N) arrays. Sizes and cost depend on how often a job occurs, so only what is deployed is laid out.
"""

import numpy as np

from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.throughput import Floats

IDLE = -1
SWAP, DROP = 0.5, 0.3  # the artifact's ξ and θ


def counts_of(genes: Ints, jobs: int) -> Ints:
    """(K, J) GPUs of each job."""
    offset = (genes + 1) + np.arange(len(genes))[:, None] * (jobs + 1)
    counted = np.bincount(offset.ravel(), minlength=len(genes) * (jobs + 1)).reshape(len(genes), jobs + 1)
    return counted[:, 1:]


def refresh(genes: Ints, limit: Ints) -> Ints:
    """Keeps of each job the first `limit` genes, at least one, from left to right."""
    return _cut(genes, np.maximum(limit, 1))


def crossover(genes: Ints, limit: Ints, rng: np.random.Generator) -> Ints:
    """K children: pairs of parents swap gene by gene with even chance; genes over a job's limit become idle."""
    children = []
    for _ in range(len(genes) // 2):
        one, other = genes[rng.choice(len(genes), 2, replace=False)]
        swap = rng.random(genes.shape[1]) < SWAP
        children += [np.where(swap, other, one), np.where(swap, one, other)]
    return _cut(np.array(children), limit)


def mutate(genes: Ints, protected: np.ndarray, rng: np.random.Generator) -> Ints:
    """K mutants: each job is thrown out as a whole with a chance of 0.3, unless it is too young."""
    out = (rng.random((len(genes), len(protected))) < DROP) & ~protected
    thrown = np.concatenate([out, np.zeros((len(genes), 1), bool)], axis=1)  # IDLE looks at the last column
    return np.where(np.take_along_axis(thrown, genes, axis=1), IDLE, genes)


def pad(genes: Ints, fresh: list[int], executed: list[int], limit: Ints, prepared: Ints) -> Ints:
    """Fills idle GPUs: one for each fresh job, then executed ones up to `limit`, and then up to `prepared`."""
    genes = genes.copy()
    counts = counts_of(genes, len(limit))
    for row, held in zip(genes, counts, strict=True):
        idle = np.flatnonzero(row == IDLE)
        at = 0
        turns = [(job, 1) for job in fresh]
        turns += [(job, int(limit[job])) for job in executed] + [(job, int(prepared[job])) for job in executed]
        for job, most in turns:
            take = min(max(most - int(held[job]), 0), len(idle) - at)
            row[idle[at : at + take]] = job
            held[job] += take
            at += take
            if at == len(idle):
                break
    return genes


def reorder(counts: Ints, now: Ints) -> Ints:
    """(N,) the same sizes as contiguous blocks, so that as few GPUs as possible change owner against `now` (N,).

    A dynamic programme over (position, jobs laid out), with the jobs in the order in which they lie now.
    """
    size = len(now)
    where = [int(np.flatnonzero(now == job)[0]) if (now == job).any() else size for job in range(len(counts))]
    jobs = [job for job in np.argsort(where, kind="stable").tolist() if counts[job]]
    kept = {job: np.concatenate([[0], np.cumsum(now == job)]) for job in jobs}
    best = np.zeros(size + 1)  # most GPUs that keep their owner with the jobs so far within the first positions
    starts: list[Ints] = []
    for job in jobs:
        width = int(counts[job])
        ending = np.full(size + 1, -np.inf)
        ending[width:] = best[: size + 1 - width] + kept[job][width:] - kept[job][: size + 1 - width]
        end = np.maximum.accumulate(ending)
        source = np.where(ending == end, np.arange(size + 1), 0)
        starts.append(np.maximum.accumulate(source) - width)
        best = end
    laid, position = np.full(size, IDLE), size
    for job, start in zip(reversed(jobs), reversed(starts), strict=True):
        position = int(start[position])
        laid[position : position + int(counts[job])] = job
    return laid


def select(genes: Ints, cost: Floats, count: int) -> Ints:
    """The cheapest `count`, duplicates kept, as published."""
    return genes[np.argsort(cost, kind="stable")[:count]]


def _cut(genes: Ints, limit: Ints) -> Ints:
    """Genes beyond a job's limit, counted from the left, become idle."""
    cut = genes.copy()
    for job, most in enumerate(limit.tolist()):
        mine = genes == job
        cut[mine & (mine.cumsum(axis=1) > most)] = IDLE
    return cut
