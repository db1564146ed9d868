"""From sizes to a plan: targets with their places, batches, and the figures behind each."""

import numpy as np

from ones_slurm.model.cluster import Allocation, ClusterView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.place import place
from ones_slurm.policy.ones.situation import Situation
from ones_slurm.policy.ones.turns import order_of, prices
from ones_slurm.policy.sizes import MAX_LR_SCALE, batch_at, shares, told

# Another batch at an unchanged size changes too little below a tenth (ours: the engine has the same margin).
REBATCH_FROM = 0.1
# What it must bring the rest of the job below, pause included; best batches lie on a flat top, and measurements err by
# that much (ours).
REBATCH_BELOW = 0.9


def plan_of(
    view: ClusterView, at: Situation, sizes: Ints, pools: Ints, allocations: dict[str, Allocation] | None = None
) -> Plan:
    """One target for every job that may be moved; `sizes` (J,) in units, placed here unless `allocations` has it."""
    if allocations is None and not at.whole_nodes:
        allocations = placed(view, at, sizes, pools)
    order = order_of(at)
    price = prices(at, order)
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    targets = []
    for j, job in enumerate(at.jobs):
        if at.fixed[j]:
            continue
        allocation = allocations[job.job_id] if allocations is not None else None
        size = int(sizes[j]) if allocation is None else sum(gpus for _, gpus in allocation)
        batch, lr_scale = _batch(at, j, size)
        targets.append(
            Target(
                job_id=job.job_id,
                nodes=size if allocation is None else len(allocation),
                batch=batch,
                lr_scale=lr_scale,
                allocation=allocation,
                reason=_reason(at, j, size, int(pools[j])),
                numbers=_numbers(at, j, size, int(pools[j]), (float(price[j]), int(rank[j]))),
            )
        )
    return Plan(tuple(targets))


def placed(view: ClusterView, at: Situation, sizes: Ints, pools: Ints, *, clears: bool = True) -> dict[str, Allocation]:
    """Which GPUs each job gets: each pool is placed by itself, for a job never spans two; `clears` as in `place`."""
    moves = [j for j in range(len(at.jobs)) if not at.fixed[j]]
    allocations: dict[str, Allocation] = {at.jobs[j].job_id: () for j in moves if not sizes[j]}
    for pool, names in enumerate(at.nodes_of):
        wanted = {at.jobs[j].job_id: int(sizes[j]) for j in moves if sizes[j] and pools[j] == pool}
        elsewhere = {at.jobs[j].job_id: 0 for j in moves if not (sizes[j] and pools[j] == pool)}
        nodes = [node for node in view.nodes if node.name in names]
        chosen = place(nodes, view.jobs, {**elsewhere, **wanted}, clears=clears)
        allocations.update((job_id, chosen[job_id]) for job_id in wanted)
    return allocations


def left_s(at: Situation, j: int, size: int, pool: int = -1) -> float:
    """Predicted seconds until the job ends at that size in a pool, or where it is; infinite for none."""
    if not size:
        return float("inf")
    stays = pool < 0 or bool(at.held_in[j, pool])
    if size == at.held[j] and stays:
        return float(at.left[j] / at.held_rate[j])
    rate = float(at.goodput[j, int(np.searchsorted(at.units, size))] * at.pace[pool])
    return float(at.left[j]) / rate if rate > 0.0 else float("inf")


def _batch(at: Situation, j: int, size: int) -> tuple[int, float]:
    """(samples, learning-rate factor): the batch with the best goodput; the linear rule where nothing was measured."""
    job = at.jobs[j]
    if not size or not at.known[j]:
        return batch_at(job, size) if at.whole_nodes else (job.batch, 1.0)
    batch = int(at.batch[j, int(np.searchsorted(at.units, size))])
    gpus = size * (max(job.gpus_per_node, 1) if at.whole_nodes else 1)
    parts = shares(job, gpus)
    even = batch // parts * parts
    batch = even if even >= at.base[j] else batch
    if job.wish is not None and job.wish.batch is not None:
        batch = job.wish.batch.clamp(batch)
    if size == at.held[j] and job.batch and not _pays(at, j, batch):
        batch = job.batch
    return batch, min(max(batch / float(at.base[j]), 1e-3), MAX_LR_SCALE)


def _pays(at: Situation, j: int, batch: int) -> bool:
    """Whether another batch at the held size changes something, and on whole nodes, where it is a move of its own,
    ends the job clearly sooner."""
    job = at.jobs[j]
    if abs(batch - job.batch) < REBATCH_FROM * job.batch:
        return False
    if not at.whole_nodes or not at.known[j] or at.now_rate[j] <= 0.0:
        return True
    return bool(at.left[j] / at.held_rate[j] + at.rebatch_s[j] < REBATCH_BELOW * at.left[j] / at.now_rate[j])


def _reason(at: Situation, j: int, size: int, pool: int) -> str:
    held = int(at.held[j])
    what = "nodes" if at.whole_nodes else "GPUs"
    if not size:
        return "waits: jobs with less GPU time left come first" + (", so it gives up its place" if held else "")
    if not at.known[j]:
        return f"starts on {size} {what} to be measured" if not held else f"keeps {size} {what} until it is measured"
    ends = _span(left_s(at, j, size, pool))
    if not held:
        return f"starts on {size} {what} and should need {ends}"
    if size == held:
        return f"keeps {size} {what}: should need {ends} more, and no change is a clear gain"
    return f"from {held} to {size} {what}: should need {ends} instead of {_span(left_s(at, j, held))}"


def _span(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"


def _numbers(at: Situation, j: int, size: int, pool: int, turn: tuple[float, int]) -> dict[str, float]:
    held = int(at.held[j])
    moves = size != held
    before_s, after_s = left_s(at, j, held), left_s(at, j, size, pool)
    return told(
        size=size,
        held=held,
        left_before_s=before_s,
        left_after_s=after_s,
        gain_s=before_s - after_s if held and size else None,
        move_cost_gpu_s=float(at.shrink_s[j] if size < held else at.move_s[j]) * size if moves else 0.0,
        area_gpu_s=float(at.area[j]),
        price=turn[0],
        rank=turn[1],
        weight=float(at.weight[j]),
        waited_s=float(at.waited_s[j]),
    )
