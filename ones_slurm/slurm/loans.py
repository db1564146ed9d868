"""What is asked of Slurm for a job that shall be lent nodes, and which jobs lend to which."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from ones_slurm.model.cluster import JobState
from ones_slurm.model.companion import asked_for, companion_comment, companion_of
from ones_slurm.model.plan import Grow
from ones_slurm.model.wire import Loan, Sync
from ones_slurm.slurm.client import JobRecord

_GRES = re.compile(r"(?:gres[:/])?(gpu[^,()]*)")


def loan_for(record: JobRecord, sync: Sync, action: Grow, now_s: float) -> Loan:
    """The companion for this growth: in all what the job itself has, for the time that it has left.

    The ranks of a node are by the job's own word, and the processors that it has there are divided among them.
    """
    held = max(len(record.nodes), 1)
    per_node = max(sync.ranks // max(len(sync.nodes), 1), 1)
    ends_s = record.end_s or (record.start_s or now_s) + (record.time_limit_s or 0.0)
    return Loan(
        job_id=record.job_id,
        restarts=record.restarts,
        generation=action.generation,
        nodes=action.nodes - action.from_nodes,
        minutes=None if record.time_limit_s is None else max(int((ends_s - now_s) // 60), 1),
        account=record.account,
        qos=record.qos,
        partition=record.partition,
        gres=gres_of(record),
        constraint=record.features,
        reservation=record.reservation,
        tasks_per_node=per_node,
        cpus_per_task=max(record.cpus // held // per_node, 1),
        exclude=record.nodes,
        comment=companion_comment(record.job_id, record.comment),
        folder=sync.folder,
    )


def gres_of(record: JobRecord) -> str:
    """Slurm's word for the GPUs that a job has on each node; empty where Slurm does not count them."""
    asked = _GRES.search(record.gres)
    if asked is not None:
        return asked[1]
    return f"gpu:{record.gpus_per_node}" if record.gpus_per_node else ""


class Lenders:
    """Who lends to whom among these jobs. A comment is a user's text: it counts only between jobs of one user."""

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        self.bases = {record.job_id: record for record in jobs}
        self._of: dict[str, list[JobRecord]] = {}
        for record in jobs:
            base_id = companion_of(record.comment)
            if base_id is not None and base_id != record.job_id:
                self._of.setdefault(base_id, []).append(record)
        self.base_ids = self._of.keys()

    def of(self, base: JobRecord) -> tuple[JobRecord, ...]:
        """The companions of a job in the order in which they were asked for."""
        return companions_of(base, self._of.get(base.job_id, ()))

    def all(self) -> list[tuple[JobRecord, JobRecord | None]]:
        """Every job that says it is a companion, with its base; None where that is gone, or another user's."""
        found = []
        for base_id, companions in self._of.items():
            base = self.bases.get(base_id)
            found += [(one, base if base is not None and base.user == one.user else None) for one in companions]
        return found


def companions_of(base: JobRecord, jobs: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """Those among some jobs that lend nodes to this one, the first asked for first."""
    own = [one for one in jobs if one.user == base.user and companion_of(one.comment) == base.job_id]
    return tuple(sorted(own, key=lambda one: (one.submit_s, len(one.job_id), one.job_id)))


def takes_part(companion: JobRecord, sync: Sync | None) -> bool:
    """Whether ranks of the base run on this companion, by the base's own word."""
    return companion.state is JobState.RUNNING and sync is not None and not set(companion.nodes).isdisjoint(sync.nodes)


def is_orphan(companion: JobRecord, base: JobRecord | None) -> bool:
    """Whether nobody can use it any more: its base has ended, waits in the queue, or began anew since it was asked for.

    One that a user submitted by hand bears another name, and is left to its base's word.
    """
    if base is None:
        return True
    asked = asked_for(companion.name)
    if asked is None:
        return False
    return base.state not in (JobState.RUNNING, JobState.SUSPENDED) or asked[1] != base.restarts


class Companions(msgspec.Struct, frozen=True):
    """The companions of one job as a view shows them: `part` are those it trains on or is about to, `hidden` all
    that are no jobs of their own in the view."""

    part: tuple[JobRecord, ...] = ()
    hidden: frozenset[str] = frozenset()


def as_shown(companions: Sequence[JobRecord], sync: Sync | None, grows_to: int | None) -> Companions:
    """`grows_to` is the generation of a growth under way. Its companion is counted with the base from the beginning,
    for the base's move already claims the nodes."""
    part = tuple(one for one in companions if takes_part(one, sync) or _comes_up(one, grows_to))
    waits = (one.job_id for one in companions if one.state is JobState.PENDING and _was_asked(one, grows_to))
    return Companions(part, frozenset([*(one.job_id for one in part), *waits]))


def _comes_up(companion: JobRecord, grows_to: int | None) -> bool:
    return companion.state is JobState.RUNNING and _was_asked(companion, grows_to)


def _was_asked(companion: JobRecord, generation: int | None) -> bool:
    asked = asked_for(companion.name)
    return generation is not None and asked is not None and asked[2] == generation
