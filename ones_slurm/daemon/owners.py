"""Whose job is this, and who may read or steer it."""

import asyncio
import collections
import os
import time
from collections.abc import Callable

from ones_slurm.daemon.auth import Caller, user_name
from ones_slurm.model.errors import NotAllowed, NotFound

# Ours: a job that Slurm did not know a moment ago is not asked for again at once, so that nobody can make the daemon
# flood slurmctld with questions.
_UNKNOWN_FOR_S = 5.0
_REMEMBERED = 4096


class Owners:
    """Rights by job. Root reads and steers all; admins and the daemon's own user read all; an owner its own jobs.
    The first three also pause and drain the daemon.

    `known` answers from memory; `look_up` asks Slurm, blocking, and is only called for jobs that memory lacks, one
    at a time for each caller, so that nobody who asks a lot delays the others.
    """

    def __init__(
        self, known: Callable[[str], str | None], look_up: Callable[[str], str | None], admins: tuple[str, ...]
    ) -> None:
        self._known = known
        self._look_up = look_up
        self._readers = {*admins, user_name(os.getuid())}
        self._asking: dict[int, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        self._found: collections.OrderedDict[str, tuple[str | None, float]] = collections.OrderedDict()

    def may_see_all(self, caller: Caller) -> bool:
        """Whether this user may read every job."""
        return caller.uid in (0, os.getuid()) or caller.name in self._readers

    def check_may_control(self, caller: Caller) -> None:
        """Raises `NotAllowed`: root, admins and the daemon's own user pause and drain it."""
        if not self.may_see_all(caller):
            raise NotAllowed(f"{caller.name} may not control onesd", hint="root and daemon.admins of the site file may")

    async def check_may_read(self, caller: Caller, job_id: str) -> None:
        """Raises `NotAllowed` or `NotFound`. Who may not read a job does not learn whether it exists."""
        await self._check(caller, job_id, free=self.may_see_all(caller))

    async def check_may_steer(self, caller: Caller, job_id: str) -> None:
        """Raises `NotAllowed` or `NotFound`: only the owner and root speak for a job."""
        await self._check(caller, job_id, free=caller.uid == 0)

    async def _check(self, caller: Caller, job_id: str, *, free: bool) -> None:
        owner = self._known(job_id)
        if owner is None:
            owner = await self._asked(caller, job_id)
        if free or owner == caller.name:
            if owner is None:
                raise NotFound(f"there is no job {job_id}", hint="finished jobs: `ones report`, `ones why`")
            return
        raise NotAllowed(f"job {job_id} is not a job of {caller.name}", hint="`ones queue` lists your jobs")

    async def _asked(self, caller: Caller, job_id: str) -> str | None:
        async with self._asking[caller.uid]:
            remembered = self._found.get(job_id)
            if remembered is not None and time.monotonic() < remembered[1]:
                return remembered[0]
            owner = await asyncio.to_thread(self._look_up, job_id)
            # A job keeps its owner until Slurm's counter wraps after years; only "unknown" changes soon.
            self._found[job_id] = (owner, float("inf") if owner else time.monotonic() + _UNKNOWN_FOR_S)
            while len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
            return owner
