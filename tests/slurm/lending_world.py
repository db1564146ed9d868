"""A fake Slurm whose jobs grow by companions: wrappers that change size while they train, and an `sbatch` for onesd.

A wrapper fails the test when ranks of it run on nodes that neither it nor a companion of it holds.
"""

import dataclasses
import subprocess

from elastic_world import ElasticWorld, FakeWrapper
from msgspec.structs import replace

from ones_slurm.model.companion import companion_of
from ones_slurm.model.settings import Moves, Site
from ones_slurm.model.wire import Declined, Lent, Phase, Sync
from ones_slurm.slurm.lenders import OwnSubmission, Request


@dataclasses.dataclass
class LiveWrapper(FakeWrapper):
    """Enters live orders in memory within `switch_s`; companions stand ready `come_up_s` after their start.

    `frozen` never follows a live order, `shy` never sees a companion.
    """

    switch_s: float = 1.0
    come_up_s: float = 2.0
    frozen: bool = False
    shy: bool = False
    folder: str = "/home/user1/ones-runs/12"
    join: tuple[str, ...] = ("/env/bin/python", "/env/bin/ones-run", "--join", "12")
    ordered_s: float | None = None

    def live(self, world, board):
        job = world.jobs[self.job_id]
        if job.state != "RUNNING" or job.completing_until_s is not None or self.phase is not Phase.TRAINING:
            self.ordered_s = None
            super().live(world, board)
            return
        held = self.held(world)
        assert world.rough or set(self.ranks_on) <= held, f"job {self.job_id} lost ranks on {self.ranks_on}"
        self.ranks_on = tuple(name for name in self.ranks_on if name in held)  # a death is a shrink
        order = None if self.deaf else board.order(self.job_id)
        if order is None or not order.live or order.generation <= self.generation:
            self.ordered_s = None
            super().live(world, board)
        elif not self.frozen:
            self.ordered_s = self.ordered_s or world.now_s
            if world.rough and not set(order.nodes) <= held:
                self.declined = Declined(order.generation, "a companion has died")
            elif world.now_s - self.ordered_s >= self.switch_s:
                assert set(order.nodes) <= held, f"{order} names nodes that job {self.job_id} cannot have"
                lenders = [one for one in world.lenders(self.job_id) if set(one.nodes) & set(order.nodes)]
                assert set(order.lenders) >= {one.job_id for one in lenders}, f"{order} does not say who lends"
                self.generation, self.batch, self.lr_scale = order.generation, order.batch, order.lr_scale
                self.ranks_on, self.ordered_s = order.nodes, None
                self.history.append((self.generation, tuple(sorted(order.nodes)), self.batch))
        if not self.deaf:
            self.companions = self.ready(world)
            board.put(self.job_id, self.sync(tuple(job.nodes)), world.now_s)

    def held(self, world):
        return super().held(world) | {name for one in world.lenders(self.job_id) for name in one.nodes}

    def ready(self, world):
        """The companions that have announced themselves."""
        up = [one for one in world.lenders(self.job_id) if world.now_s - one.start_s >= self.come_up_s]
        return () if self.shy else tuple(Lent(one.job_id, tuple(one.nodes)) for one in up)

    companions: tuple = ()

    def sync(self, nodes) -> Sync:
        told = super().sync(nodes)
        trains = self.phase is Phase.TRAINING
        return replace(
            told,
            nodes=self.ranks_on if trains else nodes,
            ranks=2 * len(self.ranks_on),
            live=trains,
            companions=self.companions,
            folder=self.folder,
            join=self.join,
        )


class LendingWorld(ElasticWorld):
    """`refuses` is what sbatch says when it submits nothing, `limited` the reason for which companions wait."""

    def __init__(self, *, who="daemon", **more):
        super().__init__(**more)
        self.refuses, self.limited = "", ""
        self.who = who
        moves = Moves(leave_timeout_s=60, start_timeout_s=100, companions=who, companion_timeout_s=40)
        self.site = Site(moves=moves)
        self.submitted = []  # the options of every companion, by name

    def train(self, nodes=1, wish="ones:nodes=1-4,batch=64-4096", **wrapper):
        job_id = self.submit(nodes=nodes, comment=f"charge:7 {wish}", time_limit_s=wrapper.pop("time_limit_s", 7200))
        self.wrappers[job_id] = LiveWrapper(job_id, **wrapper)
        return job_id

    def cluster(self, **more):
        if self.who == "daemon":
            lender = OwnSubmission(self.sbatch, user="root")
        else:
            lender = Request(self.board, agents=self.who == "agent")
        return super().cluster(lender=lender, **more)

    def lenders(self, job_id):
        """The companions of a job that hold nodes for it."""
        return [one for one in self.companions(job_id) if one.state == "RUNNING"]

    def companions(self, job_id):
        return [one for one in self.jobs.values() if companion_of(one.comment) == job_id]

    def sbatch(self, argv, *, env=None, timeout_s=None):
        """Submits what the command line says, as the user that it names."""
        options = dict(word.removeprefix("--").split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        if self.down:
            return subprocess.CompletedProcess(argv, 1, "", "Unable to contact slurm controller")
        if self.refuses:
            return subprocess.CompletedProcess(argv, 1, "", f"sbatch: error: {self.refuses}")
        self.submitted.append(options)
        job_id = self.submit(
            nodes=int(options["nodes"]),
            user=options.get("uid", "user1"),
            name=options["job-name"],
            comment=options["comment"],
            account=options["account"],
            qos=options["qos"],
            time_limit_s=60.0 * int(options["time"]),
            requeueable=False,
            limited=self.limited,
            avoid=tuple(options["exclude"].split(",")),
        )
        return subprocess.CompletedProcess(argv, 0, f"{job_id}\n", "")
