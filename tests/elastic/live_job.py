"""A job whose world changes in memory, with real processes for ranks: nodes are imagined, all the rest is as it is."""

import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from ones_slurm.elastic.crew import Crew
from ones_slurm.elastic.keeping import Keeper
from ones_slurm.elastic.launch import Generation, Script, step_environment, team_environment
from ones_slurm.elastic.lending import Announcement
from ones_slurm.elastic.link import Link
from ones_slurm.elastic.rescale import Recruiter
from ones_slurm.elastic.runfolder import RunFolder, Team, Word
from ones_slurm.elastic.step import LocalStep
from ones_slurm.elastic.wrapper import Wrapper
from ones_slurm.model.settings import Launcher
from ones_slurm.model.wire import Order, Phase, Sync

from .conftest import Daemon

# A loaded machine takes its time to import torch; what is waited for is a fact, not a time.
PATIENCE_S = 240.0


class Held:
    """An allocation of imagined nodes."""

    def __init__(self, *nodes: str) -> None:
        self.held = nodes

    def nodes(self) -> tuple[str, ...]:
        return self.held

    def comment(self) -> str:
        return ""

    def end_steps(self) -> None:
        pass

    def requeue(self) -> str:
        return "no"


class LiveJob:
    """One job: `begin`, then orders and deaths, then `end`."""

    def __init__(
        self, folder: RunFolder, script: pathlib.Path, env: Mapping[str, str], nodes: tuple[str, ...], per_node: int = 1
    ) -> None:
        self.folder, self.daemon, self.held, self.per_node = folder, Daemon(), Held(*nodes), per_node
        self.command = [sys.executable, str(script)]
        self.env = dict(env)
        self.steps: dict[str, LocalStep] = {}
        self.keepers: list[Keeper] = []
        self.crew: Crew | None = None
        self.code: int | None = None
        self.generation = 0
        self.joining_env: dict[str, str] = {}
        self.wrapper = Wrapper(
            folder=folder,
            script=Script(command=("train",)),
            allocation=self.held,
            start=self._start,
            save_signal=signal.SIGUSR2,
            leave_timeout_s=PATIENCE_S,
            recruiter=Recruiter(self._newcomers, self._invite),
        )
        self.wrapper.connect(Link(self.daemon, "12", self.wrapper.describe))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.code = self.wrapper.run(self.first)

    def begin(self, *nodes: str) -> "LiveJob":
        """Trains on these nodes, a part of those that are held."""
        self.first = Generation(number=0, nodes=nodes, ranks_per_node=self.per_node, batch=0)
        self._thread.start()
        self.until(lambda: self.sync.phase == Phase.TRAINING)
        return self

    def end(self) -> int:
        """Waits for the end of the training, and returns the job's exit code."""
        self._thread.join(PATIENCE_S)
        assert self.code is not None, "the job does not end"
        return self.code

    def stop(self) -> None:
        """Ends the job in the midst of it, as Slurm would."""
        self.wrapper.on_term()
        self.end()

    def __enter__(self) -> "LiveJob":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing outlives a test, whatever became of it."""
        self.wrapper.on_term()
        for step in self.steps.values():
            step.signal(signal.SIGKILL)
        self._thread.join(PATIENCE_S)
        for keeper in self.keepers:
            keeper.close()

    @property
    def sync(self) -> Sync:
        return self.daemon.heard[-1] if self.daemon.heard else Sync(phase=Phase.STARTING, generation=-1)

    @property
    def word(self) -> Word:
        return self.folder.read_word() or Word(generation=-1)

    def until(self, fact: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not fact():
            assert self.code is None, f"the job ended with {self.code}"
            assert time.monotonic() < deadline, self.sync
            time.sleep(0.01)

    def order(self, *nodes: str, batch: int = 0, lr_scale: float = 1.0) -> Order:
        """The daemon wants the job on these nodes."""
        self.generation += 1
        order = Order(
            generation=self.generation, kind="live", go=True, live=True, nodes=nodes, batch=batch, lr_scale=lr_scale
        )
        self.daemon.order = order
        return order

    def move(self, *nodes: str, batch: int = 0, lr_scale: float = 1.0) -> None:
        """Orders, and waits until the job says that it has happened, or that it cannot."""
        order = self.order(*nodes, batch=batch, lr_scale=lr_scale)

        self.until(lambda: self.settled(order))
        self.daemon.order = None

    def goes_on(self) -> None:
        """Waits until it has trained on."""
        before = self.word.progress.step
        self.until(lambda: self.word.progress.step > before)

    def settled(self, order: Order) -> bool:
        """Whether the job has followed the order, or declined it."""
        sync = self.sync
        declined = sync.declined is not None and sync.declined.generation == order.generation
        return (sync.generation == order.generation and sync.phase == Phase.TRAINING) or declined

    def pid(self, node: str) -> int:
        """A process of the youngest team on this node."""
        return self.pids(node)[0]

    def pids(self, node: str) -> list[int]:
        found: list[int] = []
        for step in self.steps.values():
            for task, pid in enumerate(step.pids):
                if step._node(task, len(step.pids)) == node and step._processes[task].poll() is None:
                    found.append(pid)
        return found

    def kill(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        """All processes on this node die, and the job goes on without."""
        before = self.word.formation
        for pid in self.pids(node):
            os.kill(pid, number)
        self.until(lambda: self.word.formation > before)
        self.until(lambda: node not in self.sync.nodes)

    def _environment(self, generation: Generation, team: Team, *, joining: bool) -> dict[str, str]:
        keeper = self.keepers[-1]
        base = step_environment(
            self.env,
            generation,
            Script(command=("train",)),
            self.folder,
            Launcher(),
            batch_host="",
            checkpoint_every_s=float(self.env.get("CHECKPOINT_EVERY_S", "1e9")),
        )
        return base | team_environment(
            team,
            f"{keeper.address}:{keeper.port}",
            joining=generation.number if joining else None,
            first=0,
            world=generation.ranks,
        )

    def _start(self, generation: Generation) -> Crew:
        self.keepers.append(Keeper())
        self.crew = Crew(
            self.keepers[-1],
            Team("0", generation.nodes, generation.ranks_per_node),
            lambda team: self._step(generation, team, joining=False),
        )
        return self.crew

    def _newcomers(self, generation: Generation, team: Team) -> LocalStep:
        return self._step(msgspec.structs.replace(generation, nodes=team.nodes), team, joining=True)

    def _step(self, generation: Generation, team: Team, *, joining: bool) -> LocalStep:
        env = self._environment(generation, team, joining=joining) | (self.joining_env if joining else {})
        step = LocalStep(self.command, env, team.ranks, foreign=False, nodes=team.nodes)
        self.steps[f"{len(self.keepers)}-{team.name}"] = step
        return step

    def _invite(self, generation: Generation, team: Team, lender: Announcement) -> None:
        raise NotImplementedError
