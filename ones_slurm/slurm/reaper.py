"""Ends companions that nobody can use: their base has ended or began anew, or they stand idle after a failed growth.

The base's own wrapper and the companion itself do the same. This is for the cases in which neither can.
"""

import logging
from collections.abc import Mapping, Sequence

from ones_slurm.model.cluster import JobState
from ones_slurm.model.companion import asked_for
from ones_slurm.model.errors import NotAllowed
from ones_slurm.model.plan import Grow
from ones_slurm.model.wire import Phase, Sync
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.client import JobRecord, Refused, SlurmClient
from ones_slurm.slurm.facts import OpenMove
from ones_slurm.slurm.loans import Lenders, is_orphan, takes_part

log = logging.getLogger(__name__)

# Ours: a job that was just told to take a companion in may still do so when the order is withdrawn.
IDLE_S = 30.0
# Ours: what Slurm has refused may be a matter of rights, which change seldom.
AGAIN_S = 600.0


class Reaper:
    """Looks at each snapshot; a companion is given up once it was seen to be of no use for a while."""

    def __init__(self, client: SlurmClient, board: Board, backoff: Backoff) -> None:
        self._client, self._board, self._backoff = client, board, backoff
        self._idle_since_s: dict[str, float] = {}
        self._refused_s: dict[str, float] = {}

    def look(self, jobs: Sequence[JobRecord], moves: Mapping[str, OpenMove], now_s: float) -> None:
        """`jobs` are all unfinished ones. Raises `Unreachable`."""
        of_no_use = [(one, base) for one, base in Lenders(jobs).all() if self._is_idle(one, base, moves)]
        self._idle_since_s = {one.job_id: self._idle_since_s.get(one.job_id, now_s) for one, _ in of_no_use}
        self._refused_s = {job_id: at_s for job_id, at_s in self._refused_s.items() if job_id in self._idle_since_s}
        for one, base in of_no_use:
            at_once = one.state is JobState.PENDING or is_orphan(one, base)
            if at_once or now_s - self._idle_since_s[one.job_id] >= IDLE_S:
                self._end(one.job_id, now_s)

    def _end(self, job_id: str, now_s: float) -> None:
        if now_s - self._refused_s.get(job_id, -AGAIN_S) < AGAIN_S:
            return
        log.info("companion %s is of no use to anybody any more and is ended", job_id)
        try:
            self._backoff.ask(lambda: self._client.cancel(job_id))
        except (Refused, NotAllowed) as error:
            log.warning("companion %s cannot be ended: %s", job_id, error.message)
            self._refused_s[job_id] = now_s

    def _is_idle(self, companion: JobRecord, base: JobRecord | None, moves: Mapping[str, OpenMove]) -> bool:
        if companion.state not in (JobState.PENDING, JobState.RUNNING):
            return False
        asked = asked_for(companion.name)
        if base is None or is_orphan(companion, base):
            return True
        if asked is None:
            return False
        move = moves.get(base.job_id)
        if move is not None and isinstance(move.action, Grow) and move.action.generation == asked[2]:
            return False
        sync = self._sync_of(base)
        return sync is not None and sync.phase is Phase.TRAINING and not takes_part(companion, sync)

    def _sync_of(self, base: JobRecord) -> Sync | None:
        word = self._board.word(base.job_id)
        return word.sync if word is not None and word.sync.restarts >= base.restarts else None
