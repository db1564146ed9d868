"""`ones-run`: one generation after the other, in the batch step.

    starting → training → leaving → left → (go) → starting …          finished and failed end it

It acts on facts and never waits for anybody for good: an order that the daemon gives, what rank 0 says in the run
folder, how the step ends, and which nodes Slurm says the job holds.
"""

import pathlib
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from ones_slurm.elastic.allocation import Allocation
from ones_slurm.elastic.launch import Generation, Script
from ones_slurm.elastic.link import Link
from ones_slurm.elastic.runfolder import LEFT_CODE, GenerationLine, RunFolder
from ones_slurm.elastic.step import Step
from ones_slurm.model.wire import Declined, Order, Phase, Progress, Sync

# Ours: quick beside a window of training (0.25 s), and nothing for the batch host.
_LOOK_EVERY_S = 0.1
# Ours: when Slurm ends a job, TERM reaches ranks and wrapper at the same moment, but not in the same instruction.
_TERM_WITHIN_S = 1.0
# How long a requeue that Slurm has accepted may take to end this process. Ours: KillWait (30 s by default) and slack.
_KILLED_WITHIN_S = 120.0
_TERMINATED_CODE = 128 + signal.SIGTERM
_MOST_NOTES = 16


class Wrapper:
    """One run of the batch script. `start` begins a generation; `leave_timeout_s` bounds each wait for somebody."""

    def __init__(
        self,
        *,
        folder: RunFolder,
        script: Script,
        allocation: Allocation,
        start: Callable[[Generation], Step],
        save_signal: signal.Signals,
        leave_timeout_s: float,
        restarts: int = 0,
    ) -> None:
        self._folder, self._script, self._allocation, self._start = folder, script, allocation, start
        self._save_signal, self._leave_timeout_s, self._restarts = save_signal, leave_timeout_s, restarts
        self._link = Link(None, "", self.describe)
        self._phase = Phase.STARTING
        self._sync_generation = 0
        self._running: Generation | None = None
        self._declined: Declined | None = None
        self._notes: list[str] = []
        self._asked_to_save = False
        self._terminated = False

    def connect(self, link: Link) -> None:
        """Uses this line to the daemon; without one the job trains at its size."""
        self._link = link

    def on_save_signal(self, *_: object) -> None:
        """The time limit is near, or somebody wants the job saved: it saves and puts itself back in the queue."""
        self._asked_to_save = True

    def on_term(self, *_: object) -> None:
        """Slurm ends the job."""
        self._terminated = True

    def describe(self) -> Sync:
        """The whole truth for the daemon."""
        running, word = self._running, self._folder.read_word()
        spoke = running is not None and word is not None and word.generation == running.number
        return Sync(
            phase=self._phase,
            generation=self._sync_generation,
            restarts=self._restarts,
            nodes=running.nodes if running else (),
            ranks=running.ranks if running else 0,
            batch=(word.batch if spoke and word else 0) or (running.batch if running else 0),
            progress=word.progress if word else None,
            declined=self._declined,
            pipeline=self._folder.read_pipeline(),
            notes=tuple([*self._notes, *(word.notes if word else ())][-_MOST_NOTES:]),
        )

    def run(self, first: Generation) -> int:
        """Trains until the script has ended, and returns the exit code of the batch script.

        `first` is the generation to enter when the daemon has no other order.
        """
        self._sync_generation = first.number
        self._link.ask()
        self._link.start()
        generation: Generation | int = first
        order, _ = self._link.latest()
        if order is not None and order.generation >= first.number:
            generation = self._entered(order, first) if order.go else self._wait_for_go(order.generation, first)
        while isinstance(generation, Generation):
            generation = self._train(generation)
        if not self._terminated:
            self._say(Phase.FINISHED if generation == 0 else Phase.FAILED)
            self._link.close()
        return generation

    def _say(self, phase: Phase, generation: int | None = None) -> None:
        self._phase = phase
        self._sync_generation = self._sync_generation if generation is None else generation
        self._link.tell()

    def _note(self, text: str) -> None:
        self._notes = [*self._notes, text[:1024]][-_MOST_NOTES:]
        print(f"ones-run: {text}", file=sys.stderr, flush=True)

    def _train(self, generation: Generation) -> Generation | int:
        """One generation; returns the next one, or the exit code."""
        before = self._folder.begin_generation()
        self._running = generation
        self._say(Phase.STARTING, generation.number)
        started_s = time.time()
        step = self._start(generation)
        watch = _Leave(self._leave_timeout_s)
        while (code := step.poll()) is None:
            if self._terminated:
                code = step.end()
                break
            self._watch(generation, step, watch)
            time.sleep(_LOOK_EVERY_S)
        why, following = self._after(generation, step, watch, code)
        self._record(generation, before, started_s, why)
        return following

    def _watch(self, generation: Generation, step: Step, watch: "_Leave") -> None:
        """While the ranks run: begins, withdraws or gives up a leave."""
        word = self._folder.read_word()
        spoke = word is not None and word.generation == generation.number
        runs = spoke or (self._script.foreign and step.direct)
        if self._phase == Phase.STARTING and runs:
            self._say(Phase.TRAINING)
        if watch.order is None:
            order = self._wanted(generation)
            if order is not None and (runs or not self._script.foreign):
                self._ask_to_leave(order, step, watch)
            return
        if word is not None and word.declined is not None and word.declined.generation == watch.order.generation:
            self._stay(watch, word.declined)
        elif watch.overdue:
            reason = f"the ranks have not left within {self._leave_timeout_s:g} s"
            self._stay(watch, Declined(watch.order.generation, reason))
        elif not self._asked_to_save and not watch.signalled and self._link.latest() == (None, Phase.LEAVING):
            self._stay(watch, None)

    def _ask_to_leave(self, order: Order, step: Step, watch: "_Leave") -> None:
        """By the run folder, or where the script knows nothing of us by a signal."""
        watch.begin(order)
        self._say(Phase.LEAVING)
        if self._script.foreign:
            step.signal(self._save_signal)
            watch.signalled = True
            return
        try:
            self._folder.write_order(order)
        except OSError as error:
            self._stay(watch, Declined(order.generation, f"cannot write into the run folder: {error}"))

    def _wanted(self, generation: Generation) -> Order | None:
        """The order that this generation has to leave for, if there is one.

        It has to be an answer to the present phase: the last word of a daemon that then died is no order.
        """
        order, heard_in = self._link.latest()
        refused = self._declined.generation if self._declined is not None else generation.number
        if order is not None and heard_in is not None and order.generation > max(generation.number, refused):
            return order
        if self._asked_to_save:
            return Order(generation=generation.number, kind="requeue", go=False, batch=generation.batch)
        return None

    def _stay(self, watch: "_Leave", declined: Declined | None) -> None:
        """The order is declined, or was withdrawn: the ranks train on as they are."""
        if declined is not None:
            self._declined = declined
            self._note(f"order {declined.generation} is declined: {declined.reason}")
        self._asked_to_save = False
        self._folder.clear_order()
        watch.order = None
        self._say(Phase.TRAINING)

    def _after(self, generation: Generation, step: Step, watch: "_Leave", code: int) -> tuple[str, Generation | int]:
        """Why a generation ended, and what follows."""
        word = self._folder.read_word()
        left = code == LEFT_CODE and word is not None and word.generation == generation.number and word.left
        if watch.signalled and code in (0, 128 + self._save_signal):
            left = True  # a script that is hit before it listens has trained on nothing that it could lose
        if left:
            kind = watch.order.kind if watch.order is not None else "left"
            number = watch.order.generation if watch.order is not None else generation.number
            return kind, self._wait_for_go(number, generation)
        if code == 0:
            return "finished", 0
        if not self._terminated:
            time.sleep(_TERM_WITHIN_S)
        if self._terminated:
            return "terminated", _TERMINATED_CODE
        nodes = self._allocation.nodes()
        if nodes and set(nodes) != set(generation.nodes):
            self._note(
                f"nodes went away while ranks ran: from {len(generation.nodes)} to {len(nodes)} nodes; "
                "going on from the newest whole checkpoint"
            )
            return "nodes changed", self._alone(generation, nodes)
        first = f"rank {step.cause.rank} on {step.cause.host} ended first: {step.cause.how}; " if step.cause else ""
        self._note(f"the step failed with exit code {code}: {first}see {_own_output()}")
        return "failed", code

    def _wait_for_go(self, number: int, last: Generation) -> Generation | int:
        """No rank runs and the state is on disk: waits, not for ever, for the word to begin generation `number`."""
        self._say(Phase.LEFT, number)
        deadline = time.monotonic() + self._leave_timeout_s
        while time.monotonic() < deadline:
            if self._terminated:
                return _TERMINATED_CODE
            if self._asked_to_save:
                return self._requeue()
            order, heard_in = self._link.latest()
            if order is not None and order.generation >= number and heard_in == Phase.LEFT:
                if order.go:
                    return self._entered(order, last)
                if order.generation > number:
                    number = order.generation
                    self._say(Phase.LEFT, number)
            if order is None and heard_in == Phase.LEFT:
                self._note("the order was withdrawn")
                break
            time.sleep(_LOOK_EVERY_S)
        else:
            self._note(f"no word from onesd for {self._leave_timeout_s:g} s")
        return self._alone(last, self._allocation.nodes())

    def _entered(self, order: Order, last: Generation) -> Generation:
        """The generation of an order that says go, on the nodes that Slurm says the job holds.

        The order's own list counts only where Slurm cannot be asked: a job that was restarted since may hold others.
        """
        self._declined = None
        return Generation(
            number=order.generation,
            nodes=self._allocation.nodes() or order.nodes or last.nodes,
            ranks_per_node=last.ranks_per_node,
            batch=order.batch or last.batch,
            lr_scale=order.lr_scale,
        )

    def _alone(self, last: Generation, nodes: tuple[str, ...] | None) -> Generation:
        """Without the daemon: as before, on the nodes that the job truly holds."""
        return msgspec.structs.replace(last, nodes=nodes or last.nodes)

    def _requeue(self) -> int:
        """The save was asked for by a signal: back into the queue, by the job itself."""
        refusal = self._allocation.requeue()
        if refusal:
            self._note(f"saved, but the job cannot be requeued ({refusal}); submit it again with the same --dir")
            return 1
        deadline = time.monotonic() + _KILLED_WITHIN_S
        while not self._terminated and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        return _TERMINATED_CODE

    def _record(self, generation: Generation, before: Progress, started_s: float, why: str) -> None:
        word = self._folder.read_word()
        spoke = word is not None and word.generation == generation.number
        after = word.progress if word is not None and spoke else before
        line = GenerationLine(
            generation=generation.number,
            restarts=self._restarts,
            nodes=generation.nodes,
            ranks=generation.ranks,
            batch=(word.batch if word is not None and spoke else 0) or generation.batch,
            lr_scale=generation.lr_scale,
            started_s=started_s,
            ended_s=time.time(),
            first_step=word.first_step if word is not None and spoke else before.step,
            last_step=after.step,
            first_samples=word.first_samples if word is not None and spoke else before.samples,
            last_samples=after.samples,
            ended_why=why,
        )
        try:
            self._folder.add_generation(line)
        except OSError as error:
            self._note(f"cannot write {self._folder.path}/generations.jsonl: {error}")


class _Leave:
    """A leave that is under way: for which order, since when, and whether the ranks were signalled."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since_s = 0.0
        self.order: Order | None = None
        self.signalled = False

    def begin(self, order: Order) -> None:
        self.order, self._since_s = order, time.monotonic()

    @property
    def overdue(self) -> bool:
        return self.order is not None and time.monotonic() - self._since_s > self._timeout_s


def _own_output() -> str:
    try:
        return str(pathlib.Path("/proc/self/fd/2").readlink())
    except OSError:
        return "the job's output"
