"""Lifts holds of ours that have come back.

A slurmctld that is killed comes up with what it saved last, some seconds ago. A job that was requeued, released and has
even trained since is then held again, as our requeue had left it, and nobody would ever release it. Only such jobs are
touched: those whose last requeue, by Slurm's own word, lies within a move of ours.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from ones_slurm.model.errors import NotAllowed, NotFound
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.client import JobRecord, Refused, SlurmClient

log = logging.getLogger(__name__)

# Slurm gives whole seconds, and its machine's clock may be a little behind ours (ours).
CLOCK_SLACK_S = 2.0


class Holds:
    """`requeues` are begin and end of each job's last requeue by us, also in earlier lives of the daemon."""

    def __init__(self, client: SlurmClient, backoff: Backoff, requeues: Mapping[str, tuple[float, float]]) -> None:
        self._client, self._backoff, self._requeues = client, backoff, dict(requeues)

    def note(self, job_id: str, began_s: float, ended_s: float) -> None:
        """A requeue by us is over."""
        self._requeues[job_id] = (began_s, ended_s)

    def look(self, jobs: Sequence[JobRecord], moving: Collection[str]) -> None:
        """Releases what is still held by a move that is over. Raises `Unreachable`."""
        for job in jobs:
            began_s, ended_s = self._requeues.get(job.job_id, (0.0, 0.0))
            ours = began_s - CLOCK_SLACK_S <= job.submit_s <= ended_s
            if job.held_by_requeue and ours and job.job_id not in moving:
                self._release(job.job_id)
        self._requeues = {job.job_id: self._requeues[job.job_id] for job in jobs if job.job_id in self._requeues}

    def _release(self, job_id: str) -> None:
        log.warning("job %s is held as our requeue had left it, though it was released: Slurm forgot it", job_id)
        try:
            self._backoff.ask(lambda: self._client.release(job_id))
        except (Refused, NotAllowed, NotFound) as error:
            log.warning("job %s cannot be released: %s", job_id, error.message)
            del self._requeues[job_id]
