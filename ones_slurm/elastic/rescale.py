"""A live order as the wrapper carries it out: who comes, who goes, and whether it has happened.

It starts the newcomers, tells the ranks, and waits for what rank 0 says. Nothing is taken from the old world before the
new one trains: an order that cannot be entered costs a few processes that never came in.
"""

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from ones_slurm.elastic.allocation import Allocation
from ones_slurm.elastic.crew import Crew, Seat
from ones_slurm.elastic.launch import Generation
from ones_slurm.elastic.lending import Announcement, announced
from ones_slurm.elastic.runfolder import RunFolder, Team, Wanted, Word
from ones_slurm.elastic.step import TaskedStep
from ones_slurm.model.wire import Declined, Order

# Ours: a process that has its exit before it ends within a second or so; one that hangs on its way out holds a GPU
# that Slurm will take from it by force.
_GONE_WITHIN_S = 15.0


class Recruiter(msgspec.Struct, frozen=True):
    """How ranks are started for a generation: in this allocation, or by a companion."""

    here: Callable[[Generation, Team], TaskedStep]
    there: Callable[[Generation, Team, Announcement], None]


class Rescale:
    """One order. `old` is the generation that runs; `generation` the one that is wanted."""

    def __init__(self, order: Order, old: Generation, crew: Crew, folder: RunFolder, timeout_s: float) -> None:
        self.order, self._crew, self._folder = order, crew, folder
        self._deadline_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._coming: tuple[Team, ...] = ()
        self._going: set[Seat] = set()
        self._entered_s: float | None = None
        self._old = old
        self.generation = msgspec.structs.replace(
            old,
            number=order.generation,
            batch=order.batch or old.batch,
            lr_scale=order.lr_scale,
            nodes=order.nodes,
            world=0,
        )

    def begin(self, allocation: Allocation, recruiter: Recruiter) -> Declined | None:
        """Starts the newcomers and tells the ranks; or says why that cannot be."""
        try:
            coming = self._plan(allocation)
            planned = len(self._crew.seats) - len(self._going) + sum(len(nodes) for _, nodes in coming)
            if not planned:
                return self._refusal("it names no node")
            for lender, nodes in coming:
                self._recruit(lender, nodes, recruiter)
            going = tuple(f"{seat.team}@{seat.node}" for seat in sorted(self._going, key=lambda s: (s.team, s.node)))
            told = {name: getattr(self.order, name) for name in self.order.__struct_fields__}
            self._folder.write_order(Wanted(**told, coming=self._coming, going=going))
        except (OSError, ValueError) as error:
            self.give_up()
            return self._refusal(str(error))
        return None

    def look(self, word: Word | None) -> Declined | None:
        """Whether it has failed; `done` says whether it has been entered."""
        if self._entered_s is not None or word is None:
            return None
        if word.generation == self.order.generation:
            self._crew.admitted(self._coming, self._going)
            self._entered_s = time.monotonic()
            return None
        if word.declined is not None and word.declined.generation == self.order.generation:
            return word.declined
        for team in self._coming:
            if why := self._crew.failed(team):
                return self._refusal(f"new ranks on {', '.join(team.nodes)} did not come in: {why}")
        if time.monotonic() > self._deadline_s:
            return self._refusal(f"the new world has not come about within {self._timeout_s:g} s")
        return None

    @property
    def entered(self) -> bool:
        """The new world trains."""
        return self._entered_s is not None

    @property
    def done(self) -> bool:
        """The new world trains, and who left it has ended, so that its node and GPU are free."""
        if self._entered_s is None:
            return False
        return self._crew.have_left(self._going) or time.monotonic() - self._entered_s > _GONE_WITHIN_S

    def give_up(self) -> None:
        """It will not be; whoever came for it goes."""
        self._folder.clear_order()
        for team in self._coming:
            self._crew.drop(team)

    def _plan(self, allocation: Allocation) -> list[tuple[Announcement | None, tuple[str, ...]]]:
        """Which seats go, and which nodes come, of this allocation (None) or of a companion.

        A node that the order names twice is one that a companion shares with the job, or with another companion.
        """
        named = Counter(self.order.nodes)
        stay: set[Seat] = set()
        for seat in self._crew.seats:
            if named[seat.node] > 0:
                named[seat.node] -= 1
                stay.add(seat)
        self._going = set(self._crew.seats) - stay
        missing = list((+named).elements())
        held = set(allocation.nodes() or ())
        taken = {seat.node for seat in stay if self._crew.is_local(seat)}
        ours = tuple(node for node in dict.fromkeys(missing) if node in held - taken)
        for node in ours:
            missing.remove(node)
        lenders: list[tuple[Announcement | None, tuple[str, ...]]] = [(None, ours)] if ours else []
        for companion in announced(self._folder):
            ready = companion.running is None and companion.job_id in (self.order.lenders or (companion.job_id,))
            lent = tuple(node for node in companion.nodes if node in missing and ready)
            for node in lent:
                missing.remove(node)
            if lent:
                lenders.append((companion, lent))
        if missing:
            has = ", ".join(sorted(held)) or "unknown"
            raise ValueError(
                f"it names {', '.join(missing)}, which neither this allocation ({has}) nor a companion holds"
            )
        return lenders

    def _recruit(self, lender: Announcement | None, nodes: tuple[str, ...], recruiter: Recruiter) -> None:
        per_node = self._old.ranks_per_node if lender is None else lender.ranks_per_node
        team = self._crew.new_team(nodes, per_node)
        self._coming = (*self._coming, team)
        if lender is None:
            self._crew.joins(team, recruiter.here(self.generation, team))
        else:
            self._crew.lent(team, lender.job_id)
            recruiter.there(self.generation, team, lender)

    def _refusal(self, reason: str) -> Declined:
        return Declined(self.order.generation, reason[:1024])
