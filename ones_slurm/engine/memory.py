"""What the reconciler remembers from one tick to the next, and what it says of each job; both go to the journal."""

import msgspec

from ones_slurm.model.plan import Action


class Memory(msgspec.Struct, frozen=True):
    """`growing`: for how many plans in a row a job was to grow. `moved_s`: when it was last told or seen to move.

    `sized`: the size and batch that a waiting job was last told to start with.
    """

    growing: dict[str, int] = {}
    moved_s: dict[str, float] = {}
    sized: dict[str, tuple[int, int]] = {}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one job, and why; `action` is None when nothing happens to it now."""

    job_id: str
    reason: str
    action: Action | None = None
    numbers: dict[str, float] = {}
