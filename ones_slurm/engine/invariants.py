"""What is raised when something that must always hold does not, and the checks that several places share."""

from collections import Counter
from collections.abc import Iterable

from ones_slurm.model.cluster import JobView
from ones_slurm.model.errors import OnesError
from ones_slurm.model.plan import Target

# A batch or a factor beyond these is a fault in a policy, not a wish (ours).
MAX_BATCH = 2**40
MAX_LR_SCALE = 1000.0


class InvariantError(OnesError):
    """Something that must always hold does not; `where` is view, plan or action. The program's fault, not a user's."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}", hint="nothing was acted on; this is a fault in the program")
        self.where = where


def check_unique(where: str, what: str, names: Iterable[str]) -> None:
    """No name twice."""
    named = list(names)
    if len(set(named)) < len(named):
        raise InvariantError(where, f"{what} {Counter(named).most_common(1)[0][0]}")


def check_batch(job: JobView, target: Target) -> None:
    """The batch lies within the wish, and both it and the learning-rate factor are numbers one can train with."""
    batch = job.wish.batch if job.wish is not None else None
    if target.batch and target.nodes and batch is not None and not batch.low <= target.batch <= batch.high:
        raise InvariantError("plan", f"job {job.job_id} allows a batch of {batch.low}-{batch.high}, not {target.batch}")
    if not 0 <= target.batch <= MAX_BATCH or not 0 < target.lr_scale <= MAX_LR_SCALE:
        raise InvariantError("plan", f"job {job.job_id} cannot train with batch {target.batch} × {target.lr_scale}")
