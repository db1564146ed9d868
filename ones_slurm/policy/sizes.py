"""What every policy must respect: the sizes a job may have, the batch that goes with a size, and whose turn it is."""

import math

from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.wish import Bounds

# The linear rule (learning rate in proportion to the batch) is from Goyal et al. 2017, who use a warm-up beyond the
# first few multiples; the cap is ours, because nobody warms up after a move.
MAX_LR_SCALE = 8.0
# A base batch is the job's own word. Larger ones are no batch of samples that a GPU trains on (ours).
MAX_BASE_BATCH = 2**24


def turn(job: JobView) -> tuple[bool, int, float, str]:
    """Sort key: those who hold nodes or are being moved, then by priority, then by time of submission."""
    return not (job.nodes or job.move), -job.priority, job.submit_s, job.job_id


def claims_nodes(job: JobView) -> bool:
    """Whether the job needs nodes in a plan: it holds some, is being moved, or could start as soon as it fits."""
    return bool(job.nodes) or job.move is not None or (job.state is JobState.PENDING and not job.held)


def size_bounds(job: JobView, view: ClusterView) -> Bounds:
    """The node counts that may be planned for a job: its wish, less what the cluster or the job rules out.

    A job under way between two sizes is counted at the one it goes to, a rigid one at what it has or asked for.
    """
    held = len(job.nodes)
    if job.move is not None:
        return Bounds(job.move.nodes, job.move.nodes)
    if not job.elastic or job.wish is None or job.state not in (JobState.PENDING, JobState.RUNNING):
        return Bounds(held or job.asked_nodes, held or job.asked_nodes)
    wish = job.wish.node_bounds(job.asked_nodes, job.gpus_per_node)
    low, high, step = wish.low, wish.high, wish.step
    if job.wish.batch is not None:  # a rank without a sample could not take part
        most = job.wish.batch.high // micro_batch(job) * max(job.wish.devices, 1)
        high = wish.clamp(max(low, min(high, most // max(job.gpus_per_node, 1))))
    if not held:
        return Bounds(low, high, step)
    may_requeue = view.can_requeue and job.requeueable
    may_shrink = may_requeue or view.can_shrink
    if step > 1:  # of a pipeline's sizes none lies between two replicas
        return Bounds(low, high, step) if may_requeue and may_shrink else Bounds(held, held)
    low = min(low, held) if may_shrink else held
    return Bounds(low, max(low, high if may_requeue or job.can_grow else min(high, held)))


def base_batch(job: JobView) -> int:
    """The global batch that the script's learning rate was chosen for; 0 when nobody said a credible one."""
    if job.wish is not None and job.wish.batch is not None:
        return job.wish.batch.low
    told = job.progress.base_batch if job.progress is not None else None
    return told if told is not None and 1 <= told <= MAX_BASE_BATCH else 0


def micro_batch(job: JobView) -> int:
    """Samples in a micro-batch of a pipeline job, of which each replica needs one at least; 1 for any other job."""
    return job.pipeline.micro_batch if job.pipeline is not None else 1


def shares(job: JobView, gpus: int) -> int:
    """Into how many equal parts a batch on that many GPUs is to be divided."""
    if job.wish is not None and job.wish.devices:
        return max(gpus // job.wish.devices, 1) * micro_batch(job)
    return gpus


def batch_at(job: JobView, nodes: int) -> tuple[int, float]:
    """The batch (samples) and learning-rate factor at a size: each GPU keeps the work it has at the smallest size.

    Without a batch in the wish the batch stays as the script has it. Rounded down to equal shares a GPU where the
    wish leaves room for that; a pipeline needs shares of whole micro-batches.
    """
    base = base_batch(job)
    if job.wish is None or job.wish.batch is None or nodes < 1:
        return base, 1.0
    smallest = job.wish.node_bounds(job.asked_nodes, job.gpus_per_node).low
    parts = shares(job, nodes * max(job.gpus_per_node, 1))
    batch = job.wish.batch.clamp(base * nodes // smallest)
    even = batch // parts * parts
    batch = even if even >= base else batch
    return batch, min(batch / base, MAX_LR_SCALE)


def told(**numbers: float | None) -> dict[str, float]:
    """The figures behind a decision, without those that are unknown or no numbers."""
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}
