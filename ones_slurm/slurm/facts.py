"""All that the next step of a move depends on, and the few questions that are asked of it."""

import msgspec

from ones_slurm.model.companion import asked_for
from ones_slurm.model.plan import Action, Grow, Requeue, Shrink, Start, Status
from ones_slurm.model.settings import Moves as Limits
from ones_slurm.model.wire import LoanAnswer, Order, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.steps import Finish, PostOrder, Step, TurnBack, Wait


class OpenMove(msgspec.Struct, frozen=True, kw_only=True):
    """An action under way.

    `restarts` is the job's count when the move was taken up (None until Slurm was asked), `tried` the names of the
    steps that Slurm has carried out or refused since then, `back` says why the job shall train on as it was.
    `left_in` is the run (restart count) in which the job was seen to have left for this generation.
    """

    action: Action
    restarts: int | None
    stage: str
    since_s: float
    tried: frozenset[str] = frozenset()
    back: TurnBack | None = None
    left_in: int | None = None

    @property
    def nodes(self) -> int | None:
        """The node count that the move leads to; None for one that keeps its nodes."""
        if isinstance(self.action, Shrink):
            return len(self.action.keep)
        return self.action.nodes if isinstance(self.action, Start | Requeue | Grow) else None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """`sync` is the wrapper's last word, `standing` the order that it has, `record` the job as Slurm has it.

    `companions` are the jobs that lend it nodes or are to, by Slurm's word, and `answer` what became of the request for
    the one of this move, where somebody else submits it.
    """

    move: OpenMove
    record: JobRecord
    sync: Sync | None
    standing: Order | None
    limits: Limits
    now_s: float
    companions: tuple[JobRecord, ...] = ()
    answer: LoanAnswer | None = None

    @property
    def action(self) -> Action:
        return self.move.action

    @property
    def told(self) -> Order | None:
        """The order for this very generation, if it stands."""
        ours = self.standing is not None and self.standing.generation == self.action.generation
        return self.standing if ours else None

    @property
    def companion(self) -> JobRecord | None:
        """The companion that was asked for by this move; should there be two, the older one."""
        asked = (self.record.job_id, self.record.restarts, self.action.generation)
        return next((one for one in self.companions if asked_for(one.name) == asked), None)

    @property
    def own_keep(self) -> tuple[str, ...]:
        """Those nodes that a shrink keeps and that nobody lends."""
        lent = {name for one in self.companions for name in one.nodes} - set(self.record.nodes)
        keep = self.action.keep if isinstance(self.action, Shrink) else self.record.nodes
        return tuple(name for name in keep if name not in lent)

    def restarted(self) -> bool:
        """Whether Slurm has started the job anew since the move was taken up."""
        return self.move.restarts is not None and self.record.restarts > self.move.restarts

    def reached(self) -> bool:
        """Whether the job holds what the move wants it to hold."""
        if isinstance(self.action, Shrink):
            return set(self.record.nodes) == set(self.own_keep)
        return self.move.nodes is None or len(self.record.nodes) == self.move.nodes

    def overdue(self, stage: str, limit_s: float) -> bool:
        """Whether the move has been in that stage for too long."""
        return self.move.stage == stage and self.now_s - self.move.since_s > limit_s

    def post(self, stage: str, *, go: bool) -> Step:
        """The order to leave, or to go on with what the job holds; nothing if it stands already."""
        batch, lr_scale = self.action.batch, self.action.lr_scale
        if go and self.move.back is not None and self.sync is not None and batch:
            lr_scale *= self.sync.batch / batch or 1.0  # the linear rule backwards: the factor of the batch it had
            batch = self.sync.batch
        order = Order(
            generation=self.action.generation,
            kind=str(self.action.__struct_config__.tag),
            go=go,
            batch=batch,
            lr_scale=lr_scale,
            nodes=self.record.nodes if go else (),
            reason=self.move.back.reason if self.move.back is not None else self.action.reason,
        )
        return Wait(stage) if order == self.standing else PostOrder(stage, order)

    def finish_training(self, how: str) -> Finish:
        """The job trains: as it was meant to, or not."""
        if self.move.back is not None:
            return Finish(self.move.back.status, self.move.back.reason)
        if self.reached():
            return Finish(Status.DONE, how)
        return Finish(Status.REFUSED, f"{how} with {len(self.record.nodes)} nodes")
