"""Carries out what `next_step` says: the only place where a move touches Slurm or a wrapper."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable
from ones_slurm.model.plan import Grow, Outcome, Start, Status
from ones_slurm.model.settings import Moves as Limits
from ones_slurm.model.wire import Phase
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.client import JobRecord, Refused, SlurmClient
from ones_slurm.slurm.facts import OpenMove
from ones_slurm.slurm.lenders import Lender
from ones_slurm.slurm.loans import companions_of
from ones_slurm.slurm.moves import forgotten, gave_up, next_step
from ones_slurm.slurm.steps import (
    RESIZING,
    Finish,
    GiveBack,
    Lend,
    PostOrder,
    Release,
    RequeueHold,
    ShrinkTo,
    SizePending,
    StartNow,
    Step,
    TurnBack,
    Wait,
)

log = logging.getLogger(__name__)

# More steps in a row than any move has; a look that goes on longer would go round in circles.
STEPS_A_LOOK = 8


class Mover:
    """Takes one move as far as it goes without waiting. Without a `lender` no job has companions here."""

    def __init__(
        self,
        client: SlurmClient,
        board: Board,
        backoff: Backoff,
        limits: Limits,
        now: Callable[[], float],
        *,
        lender: Lender | None = None,
    ) -> None:
        self._client, self._board, self._backoff, self._limits, self._now = client, board, backoff, limits, now
        self._lender = lender

    def look(self, move: OpenMove) -> tuple[OpenMove, Outcome | None]:
        """The move as it stands after this look, and its outcome if it is over.

        An unreachable Slurm ends the look; the same facts lead to the same step at the next one.
        """
        job_id, generation = move.action.job_id, move.action.generation
        word = self._board.word(job_id)
        if word is not None and word.sync.phase is Phase.LEFT and word.sync.generation == generation:
            move = replace(move, left_in=word.sync.restarts)
        elif word is not None and gave_up(move, word.sync):
            self._withdraw(move)
            told = "the job did not wait for its order, and went on by itself"
            return move, Outcome(job_id, generation, Status.REFUSED, told)
        try:
            for _ in range(STEPS_A_LOOK):
                step, move = self._next(move)
                if isinstance(step, Finish):
                    self._withdraw(move)
                    return move, Outcome(job_id, generation, step.status, step.reason)
                if isinstance(step, Wait):
                    break
                log.info("job %s %s", job_id, step)
                move = self._carry_out(move, step)
                if isinstance(step, RequeueHold | Release):
                    break  # Slurm needs a moment to show it
        except Unreachable as error:
            log.warning("job %s stays where it is on its move: %s", job_id, error.message)
        return move, None

    def record(self, job_id: str) -> JobRecord | None:
        """The job as Slurm has it now; None when it is gone. Raises `Unreachable`."""
        try:
            return self._backoff.ask(lambda: self._client.job(job_id))
        except NotFound:
            return None

    def _next(self, move: OpenMove) -> tuple[Step, OpenMove]:
        job_id = move.action.job_id
        record = self.record(job_id)
        if move.restarts is None and record is not None:
            move = replace(move, restarts=record.restarts)
        if record is not None and forgotten(move, record):
            move = replace(move, stage=RESIZING, since_s=self._now(), tried=frozenset())
        companions: tuple[JobRecord, ...] = ()
        if record is not None and self._lender is not None and not isinstance(move.action, Start):
            user = record.user
            jobs = self._backoff.ask(lambda: self._client.jobs_of(user))
            record = next((job for job in jobs if job.job_id == job_id), record)
            companions = companions_of(record, jobs)
        word = self._board.word(job_id)
        step = next_step(
            move,
            record,
            word.sync if word is not None else None,
            standing=self._board.order(job_id),
            now_s=self._now(),
            limits=self._limits,
            companions=companions,
            answer=self._board.loans.answer_to(job_id),
        )
        if step.stage and step.stage != move.stage:
            move = replace(move, stage=step.stage, since_s=self._now())
        return step, move

    def _carry_out(self, move: OpenMove, step: Step) -> OpenMove:
        """Does it. What Slurm refuses turns the move back; a release or a start time that it refuses does not."""
        job_id, client = move.action.job_id, self._client
        name: str
        match step:
            case PostOrder(order=order):
                self._board.post(job_id, order)
                return move
            case TurnBack():
                return replace(move, back=step)
            case ShrinkTo(keep=keep, lender=lender):
                name, change = "shrink", lambda: client.shrink(lender or job_id, keep)
            case Lend():
                name, change = "lend", lambda: self._lend(job_id, step)
            case GiveBack(lender=lender):
                name, change = "give back", lambda: client.cancel(lender)
            case RequeueHold():
                name, change = "requeue", lambda: client.requeue_hold(job_id)
            case SizePending(nodes=nodes):
                name, change = f"size {nodes}", lambda: client.size_pending(job_id, nodes)
            case StartNow():
                name, change = "start_now", lambda: client.start_now(job_id)
            case Release():
                name, change = "release", lambda: client.release(job_id)
            case _:
                raise AssertionError(step)
        try:
            self._backoff.ask(change)
        except (Refused, NotAllowed, NotFound) as error:
            log.warning("job %s: %s refused: %s", job_id, name, error.message)
            if move.back is None and isinstance(step, ShrinkTo | RequeueHold | SizePending | Lend | GiveBack):
                move = replace(move, back=TurnBack(step.stage, Status.REFUSED, error.message))
        return replace(move, tried=move.tried | {name})

    def _lend(self, job_id: str, step: Lend) -> None:
        word = self._board.word(job_id)
        if word is None or self._lender is None:
            raise Refused("no companions are submitted here any more")
        self._lender.lend(self._client.job(job_id).user, step.loan, word.sync)

    def _withdraw(self, move: OpenMove) -> None:
        """Takes this move's own order back; a waiting job that started in the meantime may have another."""
        if isinstance(move.action, Grow):
            self._board.loans.withdraw(move.action.job_id)
        order = self._board.order(move.action.job_id)
        if order is not None and order.generation == move.action.generation and not isinstance(move.action, Start):
            self._board.post(move.action.job_id, None)
