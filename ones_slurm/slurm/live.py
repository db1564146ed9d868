"""The live cluster: Slurm and the jobs' wrappers behind the four methods of `Cluster`.

`observe` costs one batched query. Moves are carried on inside `wait`, in the thread that calls it; jobs talk to the
`board` from other threads meanwhile. Slurm is asked about single jobs only while they move or wait for an order.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ones_slurm.model.cluster import ClusterView, JobState
from ones_slurm.model.errors import Unreachable
from ones_slurm.model.plan import Action, Grow, Outcome, Requeue, Start, Status
from ones_slurm.model.settings import Site
from ones_slurm.model.sockets import Changed, Event, Finished
from ones_slurm.model.wire import Order, Phase, Sync
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board, follows, speed
from ones_slurm.slurm.client import JobRecord, SlurmClient
from ones_slurm.slurm.facts import OpenMove
from ones_slurm.slurm.greeting import greet, needs_order
from ones_slurm.slurm.holds import Holds
from ones_slurm.slurm.join import SILENT_AFTER_S, Join
from ones_slurm.slurm.lenders import Lender
from ones_slurm.slurm.mover import Mover
from ones_slurm.slurm.reaper import Reaper
from ones_slurm.slurm.steps import LEAVING, LENDING, QUEUED, SWITCHING

log = logging.getLogger(__name__)

# How often Slurm is asked about a job on the move: each second while a change is expected, less when it takes long
# (ours; sites ask for seconds between calls). While its ranks leave, the wrapper's word comes by itself.
LOOK_S, LOOK_RARELY_S, QUICK_FOR_S = 1.0, 5.0, 30.0
# After the first event more follow at once; one decision serves them all (ours).
SETTLE_S = 2.0
# The batch that a job had at a size serves it again at that size; few sizes are visited often (ours).
ORDERS_KEPT = 8
# Phases that change what a policy can do with a job.
TELLING = (Phase.TRAINING, Phase.FAILED)


class Allowed(Protocol):
    """What a look at the site has found to be possible."""

    @property
    def can_shrink(self) -> bool: ...

    @property
    def can_requeue(self) -> bool: ...


class LiveCluster:
    """`Cluster` on a real Slurm.

    `generations` are the highest ones known from earlier lives of the daemon, so that none is used twice. `pause`
    waits up to that many seconds for jobs that say something new; tests put another time behind it and `clock`.
    `lender` submits companions; without one (None) jobs have none here, and none is touched. `owner` is set to keep to
    that user's companions. `requeues` are when those of earlier lives began and ended; None: no hold is lifted.
    """

    def __init__(
        self,
        client: SlurmClient,
        board: Board,
        site: Site,
        allowed: Allowed,
        *,
        backoff: Backoff,
        generations: Mapping[str, int] | None = None,
        lender: Lender | None = None,
        owner: str | None = None,
        requeues: Mapping[str, tuple[float, float]] | None = None,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], set[str]] | None = None,
    ) -> None:
        self._client, self._board, self._site, self._allowed = client, board, site, allowed
        self._backoff, self._clock, self._pause = backoff, clock, pause or board.wait_for_news
        self._lender, self._owner = lender, owner
        self._mover = Mover(client, board, backoff, site.moves, self.now, lender=lender)
        self._reaper = Reaper(client, board, backoff) if lender is not None else None
        self._holds = Holds(client, backoff, requeues) if requeues is not None else None
        self._no_loans_before_s: dict[str, float] = {}
        self._now_s = clock()
        self._moves: dict[str, OpenMove] = {}
        self._look_s: dict[str, float] = {}
        self._taken_up_s: dict[str, float] = {}
        self._restarts: dict[str, int] = {}
        self._starts: dict[str, Start] = {}
        self._orders: dict[str, list[Order]] = {}  # what each job was last told to go with, newest first
        self._heard: dict[str, Sync] = {}
        self._greeted: dict[str, int] = {}  # the run (restart count) in which a job was last given a start order
        self._asking: set[str] = set()
        self._highest = dict(generations or {})

    def now(self) -> float:
        """Unix seconds; stands still while the machine's clock is set back."""
        self._now_s = max(self._now_s, self._clock())
        return self._now_s

    def observe(self) -> ClusterView:
        """All unfinished jobs and all nodes, by one query. Raises `Unreachable`, for a while without asking."""
        snapshot = self._backoff.ask(self._client.snapshot)
        now_s = self.now()
        self._restarts = {record.job_id: record.restarts for record in snapshot.jobs}
        self._forget(now_s)
        words = self._board.words()
        self._asking |= {job_id for job_id, word in words.items() if needs_order(word.sync)}
        moves = self._site.moves
        if self._reaper is not None:
            owned = [job for job in snapshot.jobs if self._owner in (None, job.user)]
            self._reaper.look(owned, self._moves, now_s)
        if self._holds is not None:
            self._holds.look(snapshot.jobs, self._moves)
        return Join(self._site, words, self._moves, self._starts, self._can_lend).view(
            snapshot,
            now_s,
            can_shrink=moves.shrink and self._allowed.can_shrink,
            can_requeue=moves.requeue and self._allowed.can_requeue,
        )

    def act(self, actions: Sequence[Action]) -> list[Outcome]:
        """Takes each action up; what comes of it is told by `wait`."""
        return [self._take_up(action) for action in actions]

    def wait(self, until_s: float) -> list[Event]:
        """Carries moves on and answers jobs that ask, until `until_s` or shortly after the first event before that."""
        events: list[Event] = []
        while True:
            left_s = max(until_s - self.now(), 0.0)
            news = self._pause(min(left_s, LOOK_S) if self._moves or self._asking else left_s)
            quiet = not events
            for job_id in news:
                events.extend(self._hear(job_id))
            for job_id in [job for job in self._moves if job in news or self._look_s[job] <= self.now()]:
                events.extend(self._look(job_id))
            for job_id in [job for job in self._asking if job not in self._moves]:
                self._greet(job_id)
            if quiet and events:
                until_s = min(until_s, self.now() + SETTLE_S)
            if self.now() >= until_s:
                return events

    def _can_lend(self, record: JobRecord, sync: Sync) -> bool:
        """Whether this job can be given nodes while it trains, here and now."""
        if self._lender is None or not sync.live or self._owner not in (None, record.user):
            return False
        now_s, within_s = self.now(), self._site.moves.companion_timeout_s
        ready = self._no_loans_before_s.get(record.job_id, 0.0) <= now_s
        ends_soon = record.end_s is not None and record.end_s - now_s < within_s
        return ready and not ends_soon and self._lender.can_lend(record.user, sync, now_s)

    def _take_up(self, action: Action) -> Outcome:
        job_id, generation = action.job_id, action.generation
        open_move = self._moves.get(job_id)
        if open_move is not None and open_move.action.generation != generation:
            return Outcome(job_id, generation, Status.REFUSED, "another move of this job is under way")
        if open_move is None:
            stage = QUEUED if isinstance(action, Start) else LENDING if isinstance(action, Grow) else LEAVING
            restarts = self._restarts.get(job_id)
            self._moves[job_id] = OpenMove(action=action, restarts=restarts, stage=stage, since_s=self.now())
            self._look_s[job_id] = self._taken_up_s[job_id] = self.now()
            self._highest[job_id] = max(self._highest.get(job_id, 0), generation)
            if isinstance(action, Start):
                self._starts[job_id] = action
        return Outcome(job_id, generation, Status.ACCEPTED)

    def _look(self, job_id: str) -> list[Event]:
        """Takes one move on; an outcome ends it."""
        move, outcome = self._mover.look(self._moves[job_id])
        order = self._board.order(job_id)
        if order is not None and order.go:
            self._remember(job_id, order)
        if outcome is None:
            now_s = self.now()
            rarely = move.stage in (LEAVING, SWITCHING) or now_s - move.since_s > QUICK_FOR_S
            self._moves[job_id] = move
            self._look_s[job_id] = now_s + max(LOOK_RARELY_S if rarely else LOOK_S, self._backoff.wait_s)
            return []
        del self._moves[job_id], self._look_s[job_id]
        began_s = self._taken_up_s.pop(job_id)
        if isinstance(move.action, Requeue) and self._holds is not None:
            self._holds.note(job_id, began_s, self.now())
        if outcome.status is not Status.DONE:
            self._starts.pop(job_id, None)
        if isinstance(move.action, Grow) and outcome.status is Status.REFUSED:
            self._no_loans_before_s[job_id] = self.now() + self._site.moves.companion_retry_s
        word = self._board.word(job_id)
        told = word is not None and word.sync.phase is Phase.STARTING and word.sync.generation >= outcome.generation
        if word is not None and needs_order(word.sync) and not told:
            self._asking.add(job_id)
        return [outcome]

    def _hear(self, job_id: str) -> list[Event]:
        """A job said something new: note whether it waits for an order, and whether a decision is worth while."""
        word = self._board.word(job_id)
        if word is None:
            return []
        sync, before = word.sync, self._heard.get(job_id)
        self._heard[job_id] = sync
        if needs_order(sync):
            self._asking.add(job_id)
        else:
            self._asking.discard(job_id)
            if job_id not in self._moves:
                self._board.post(job_id, None)  # it follows its start order, or did not wait for it
        if sync.phase is Phase.FINISHED and (before is None or before.phase is not Phase.FINISHED):
            return [Finished(job_id, sync.progress)]
        if sync.phase in TELLING and (before is None or before.phase is not sync.phase):
            return [Changed(job_id, f"the job is {sync.phase}")]
        if before is not None and speed(sync) > 0 and not speed(before) > 0:
            return [Changed(job_id, "first measurement")]
        return []

    def _greet(self, job_id: str) -> None:
        """Gives a job that waits for an order, and is not on the move, the order to go with what it holds."""
        word, standing = self._board.word(job_id), self._board.order(job_id)
        run = word.sync.restarts if word is not None else 0
        following = word is not None and standing is not None and follows(word.sync, standing)
        if word is None or (following and self._greeted.get(job_id) == run):
            self._asking.discard(job_id)
            return
        try:
            record = self._mover.record(job_id)
        except Unreachable as error:
            log.warning("job %s waits for its order: %s", job_id, error.message)
            return
        self._asking.discard(job_id)
        if record is None or record.state is not JobState.RUNNING or run < record.restarts:
            return  # an old word: its wrapper is no more
        known = [*self._orders.get(job_id, ()), *filter(None, [self._starts.get(job_id)])]
        order = greet(record, word.sync, known, self._highest.get(job_id, 0))
        self._greeted[job_id] = run
        self._remember(job_id, order)
        self._board.post(job_id, order)

    def _remember(self, job_id: str, order: Order) -> None:
        self._highest[job_id] = max(self._highest.get(job_id, 0), order.generation)
        orders = self._orders.setdefault(job_id, [])
        if order not in orders:
            self._orders[job_id] = [order, *orders][:ORDERS_KEPT]

    def _forget(self, now_s: float) -> None:
        """Drops what is known of jobs that are gone."""
        alive = self._restarts.keys() | self._moves.keys()
        self._board.forget_all_but(alive, now_s - SILENT_AFTER_S)
        for kept in (self._starts, self._orders, self._heard, self._greeted, self._no_loans_before_s):
            for job_id in kept.keys() - alive:
                kept.pop(job_id)
