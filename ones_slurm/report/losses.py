"""Where the GPU time of a job went: what trained it, and what did not.

All in GPU-seconds. Source: the segments of `segments.py`, with what the journal adds to them; without the journal only
`waiting` and the clean-up part of `restarting` can be told, and `told` is False.
"""

import math
from collections.abc import Iterable

import msgspec

from ones_slurm.report.segments import JobHistory, Segment


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-seconds by cause. Those but `waiting` are parts of the time held; the rest of that was worth something.

    waiting: the waits, each times the GPUs that the job then got. Others may have used these meanwhile.
    restarting: nodes taken while Slurm cleaned up for a requeue, and from a start until the job trained.
    moving: from the order to become another size until it was one, while the nodes were held. At most: a job may train
        on under the order.
    lost_work: trained, and trained again after a crash or a stop without a checkpoint.
    bubbles: the share of a pipeline's time that its busiest device stood idle, by the job's own account.
    large_batch: what samples at a larger batch than the script's own were worth less (statistical efficiency).
    held: GPU-seconds held, clean-up included. useful: what is left of it.
    told: whether the journal knew of the job.
    """

    held: float = 0.0
    waiting: float = 0.0
    moving: float = 0.0
    restarting: float = 0.0
    lost_work: float = 0.0
    bubbles: float = 0.0
    large_batch: float = 0.0
    told: bool = False

    @property
    def useful(self) -> float:
        """GPU-seconds that trained the job."""
        wasted = (self.moving, self.restarting, self.lost_work, self.bubbles, self.large_batch)
        return max(self.held - math.fsum(wasted), 0.0)

    @property
    def goodput(self) -> float | None:
        """Useful share of the GPU time held; None where none was held or the journal knows nothing."""
        return self.useful / self.held if self.held and self.told else None


CAUSES = ("waiting", "moving", "restarting", "lost_work", "bubbles", "large_batch")


def losses(job: JobHistory) -> Losses:
    """Those of one job."""
    first, *more = map(_of_segment, job.segments)
    return total_losses((first, *more)) if more else first


def total_losses(parts: Iterable[Losses]) -> Losses:
    """The sums; told if any part was."""
    every = list(parts)
    sums = {name: math.fsum(getattr(part, name) for part in every) for name in ("held", *CAUSES)}
    return Losses(**sums, told=any(part.told for part in every))


def _of_segment(segment: Segment) -> Losses:
    own_gpus = segment.gpus - segment.lent_gpus
    starting = segment.gpus * (segment.startup_s or 0)
    moving = segment.gpus * (segment.moving_s or 0)
    trained = max(segment.gpu_s - starting - moving, 0)
    told = segment.samples or 0
    again = segment.lost_samples or 0
    lost_work = trained * again / (told + again) if again else 0.0
    left = trained - lost_work
    bubbles = left * (segment.bubble or 0.0)
    worth = 1.0 if segment.efficiency is None else segment.efficiency
    return Losses(
        held=segment.gpu_s + segment.restart_gpu_s,
        waiting=segment.wait_s * own_gpus,
        moving=moving,
        restarting=segment.restart_gpu_s + starting,
        lost_work=lost_work,
        bubbles=bubbles,
        large_batch=(left - bubbles) * (1.0 - worth),
        told=segment.moving_s is not None or segment.samples is not None,
    )
