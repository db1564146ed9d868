"""A fake Slurm whose jobs have wrappers that do what `ones-run` does, for stories about the live cluster.

Time passes only in `pause`, which the live cluster calls while it waits. A wrapper whose nodes change while its ranks
run would have lost them, so it fails the test.
"""

import dataclasses

import numpy as np
from fake_slurm import FakeSlurm, World

from ones_slurm.model.settings import Moves, Site
from ones_slurm.model.wire import Declined, Order, Phase, Progress, Sync
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.live import LiveCluster

SLICE_S = 0.5


@dataclasses.dataclass(frozen=True)
class Everything:
    """A site that allows all."""

    can_shrink: bool = True
    can_requeue: bool = True


@dataclasses.dataclass
class FakeWrapper:
    """Follows orders; `deaf` never hears any, `stubborn` declines them, `patience_s` is how long it waits for go.

    One whose patience ends trains on in a generation of its own number, or with `renumbers=False` in its old one.
    """

    job_id: str
    save_s: float = 2.0
    start_s: float = 2.0
    patience_s: float = 300.0
    deaf: bool = False
    stubborn: bool = False
    renumbers: bool = True
    phase: Phase | None = None
    generation: int = 0
    entering: int = 0
    since_s: float = 0.0
    restarts: int = 0
    batch: int = 0
    lr_scale: float = 1.0
    ranks_on: tuple[str, ...] = ()
    declined: Declined | None = None
    history: list[tuple[int, tuple[str, ...], int]] = dataclasses.field(default_factory=list)

    def live(self, world: World, board: Board) -> None:
        """One look at the world: a new run begins, ranks come and go, and the board is told."""
        job = world.jobs[self.job_id]
        if job.state != "RUNNING" or job.completing_until_s is not None:
            assert self.phase in (None, Phase.LEFT, Phase.STARTING) or job.state != "PENDING" or world.rough, (
                f"job {self.job_id} was requeued while its ranks were {self.phase}"
            )
            self.phase, self.ranks_on = None, ()
            return
        if self.phase is None or self.restarts != job.restarts:
            self.phase, self.restarts, self.since_s, self.declined = Phase.STARTING, job.restarts, world.now_s, None
            self.entering = 0
        if self.ranks_on:
            assert set(self.ranks_on) <= self.held(world), f"job {self.job_id} lost ranks on {self.ranks_on}"
        order = None if self.deaf else board.order(self.job_id)
        self._move_on(order, tuple(job.nodes), world.now_s)
        if not self.deaf:
            board.put(self.job_id, self.sync(tuple(job.nodes)), world.now_s)

    def held(self, world: World) -> set[str]:
        """Where ranks may run."""
        return set(world.jobs[self.job_id].nodes)

    def sync(self, nodes: tuple[str, ...]) -> Sync:
        waits = self.phase in (Phase.LEFT, Phase.STARTING) and self.entering
        return Sync(
            phase=self.phase,
            generation=self.entering if waits else self.generation,
            restarts=self.restarts,
            nodes=nodes,
            ranks=len(self.ranks_on),
            batch=self.batch,
            progress=Progress(samples_per_s=100.0 * len(self.ranks_on), base_batch=64),
            declined=self.declined,
        )

    def _move_on(self, order: Order | None, nodes: tuple[str, ...], now_s: float) -> None:
        spent_s = now_s - self.since_s
        new = order is not None and order.generation > max(self.generation, self.entering if self.ranks_on else 0)
        if self.phase is Phase.TRAINING and new and not order.go:
            if self.stubborn:
                self.declined = Declined(order.generation, "the disk is full")
            else:
                self._turn(Phase.LEAVING, now_s)
        elif self.phase is Phase.LEAVING and spent_s >= self.save_s:
            self.ranks_on = ()
            self.generation = max(self.generation, self.entering)
            self.entering = order.generation if new else self.generation + 1
            self._turn(Phase.LEFT, now_s)
        elif self.phase is Phase.STARTING and self.ranks_on and new and not order.go:
            self._turn(Phase.LEAVING, now_s)
        elif self.phase is Phase.STARTING and new and not order.go:
            self.entering = order.generation
            self._turn(Phase.LEFT, now_s)
        elif self.phase in (Phase.LEFT, Phase.STARTING) and not self.ranks_on:
            if new and not order.go:
                self.entering = order.generation
            if new and order.go:
                assert set(order.nodes) == set(nodes), f"{order} does not fit {nodes}"
                self._enter(order.generation, order.batch, order.lr_scale, nodes, now_s)
            elif spent_s > self.patience_s:
                own = max(self.entering, self.generation) + 1 if self.renumbers else self.generation
                self._enter(own, self.batch, self.lr_scale, nodes, now_s)
        elif self.phase is Phase.STARTING and spent_s >= self.start_s:
            self.generation = self.entering
            self.history.append((self.generation, self.ranks_on, self.batch))
            self._turn(Phase.TRAINING, now_s)

    def _enter(self, generation: int, batch: int, lr_scale: float, nodes: tuple[str, ...], now_s: float) -> None:
        self.entering, self.batch, self.lr_scale, self.ranks_on = generation, batch, lr_scale, nodes
        self._turn(Phase.STARTING, now_s)

    def _turn(self, phase: Phase, now_s: float) -> None:
        self.phase, self.since_s = phase, now_s


class ElasticWorld(World):
    """A world with wrappers. `rough` lets outsiders requeue jobs whose ranks run."""

    def __init__(self, **more: object) -> None:
        super().__init__(**more)
        self.board = Board()
        self.wrappers: dict[str, FakeWrapper] = {}
        self.slurm = FakeSlurm(self)
        self.site = Site(moves=Moves(leave_timeout_s=60, start_timeout_s=100))
        self.rough = False

    def train(self, nodes: int = 1, wish: str = "ones:nodes=1-4,batch=64-4096", **wrapper: object) -> str:
        """Submits an elastic training; `wrapper` are fields of `FakeWrapper`."""
        job_id = self.submit(nodes=nodes, comment=wish)
        self.wrappers[job_id] = FakeWrapper(job_id, **wrapper)
        return job_id

    def cluster(self, **more: object) -> LiveCluster:
        """A daemon's view of this world, new or after a restart (then with a new board)."""
        clock = lambda: self.now_s  # noqa: E731
        backoff = Backoff(np.random.default_rng(1), first_s=1.0, longest_s=5.0, clock=clock)
        return LiveCluster(
            self.slurm,
            self.board,
            self.site,
            Everything(),
            **{"backoff": backoff, "requeues": {}, "clock": clock, "pause": self.pause} | more,
        )

    def pause(self, seconds: float) -> set[str]:
        """Lets time pass until some wrapper says something new."""
        until_s = self.now_s + seconds
        while True:
            for wrapper in self.wrappers.values():
                wrapper.live(self, self.board)
            news = self.board.wait_for_news(0)
            if news or self.now_s >= until_s:
                return news
            self.advance(min(SLICE_S, until_s - self.now_s))

    def restart_daemon(self) -> None:
        """All that was in the daemon's memory is gone; wrappers speak to the new one."""
        self.board = Board()
