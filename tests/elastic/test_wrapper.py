"""ones-run follows orders, says how it stands, and never waits for anybody for good."""

import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from ones_slurm.elastic import step as step_module
from ones_slurm.elastic import wrapper as wrapper_module
from ones_slurm.elastic.launch import Generation, Script
from ones_slurm.elastic.link import Link
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder, Word
from ones_slurm.elastic.step import Cause, LocalStep, SrunStep
from ones_slurm.elastic.wrapper import Wrapper
from ones_slurm.model.wire import Order, Phase, Progress, Sync

from .conftest import Daemon

# Stands for ranks with our API: leaves when there is an order, declines if told to, ends when its life is over.
RANKS = """
import os, sys, time
from ones_slurm.elastic.runfolder import RunFolder, Word
from ones_slurm.model.wire import Declined, Progress
folder, generation = RunFolder(os.environ["RUN"]), int(os.environ["GENERATION"])
behaviour, life_s = sys.argv[1], float(sys.argv[2])
start = time.monotonic()
if behaviour == "crash":
    sys.exit(7)
while time.monotonic() - start < life_s:
    order = folder.read_order()
    if order and behaviour == "follow":
        folder.write_word(Word(generation=generation, left=True, progress=Progress(step=9, samples=90)))
        sys.exit(75)
    declined = Declined(order.generation, "disk full") if order and behaviour == "decline" else None
    folder.write_word(Word(generation=generation, declined=declined, progress=Progress(step=5, samples=50)))
    time.sleep(0.02)
"""

# A script without our API, as plain_digits.py is one.
FOREIGN = """
import pathlib, signal, sys, time
asked = []
signal.signal(signal.SIGUSR2, lambda *_: asked.append(1))
checkpoint, batch, lr = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
steps = int(checkpoint.read_text()) if checkpoint.exists() else 0
pathlib.Path(sys.argv[4]).open("a").write(f"from {steps} batch {batch} lr {lr}\\n")
while steps < 100:
    steps += 1
    time.sleep(0.02)
    if asked:
        checkpoint.write_text(str(steps))
        sys.exit(0)
"""


class Held:
    """An allocation that a test may change."""

    def __init__(self, *nodes: str) -> None:
        self.held: tuple[str, ...] | None = nodes
        self.requeues: list[float] = []
        self.steps_ended = 0
        self.refusal = ""

    def nodes(self) -> tuple[str, ...] | None:
        return self.held

    def comment(self) -> str:
        return ""

    def end_steps(self) -> None:
        self.steps_ended += 1

    def requeue(self) -> str:
        self.requeues.append(time.monotonic())
        return self.refusal


class Rehearsal:
    """A wrapper whose generations are local processes."""

    def __init__(self, folder: RunFolder, daemon: Daemon, *behaviours: tuple[str, float]) -> None:
        self.folder, self.daemon, self.behaviours = folder, daemon, list(behaviours)
        self.script = Script(command=("ranks",))
        self.held = Held("c1", "c2")
        self.started: list[Generation] = []
        self.leave_timeout_s = 10.0

    def start(self, generation: Generation) -> LocalStep:
        self.started.append(generation)
        behaviour, life_s = self.behaviours.pop(0)
        env = {**os.environ, "RUN": str(self.folder.path), "GENERATION": str(generation.number)}
        return LocalStep([sys.executable, "-c", RANKS, behaviour, str(life_s)], env, 1, foreign=True)

    def wrapper(self) -> Wrapper:
        wrapper = Wrapper(
            folder=self.folder,
            script=self.script,
            allocation=self.held,
            start=self.start,
            save_signal=signal.SIGUSR2,
            leave_timeout_s=self.leave_timeout_s,
        )
        wrapper.connect(Link(self.daemon, "12", wrapper.describe))
        return wrapper

    def run(self) -> int:
        return self.wrapper().run(Generation(number=0, nodes=("c1", "c2"), ranks_per_node=1, batch=64))


def order(generation: int, *, go: bool, nodes: tuple[str, ...] = (), batch: int = 128, kind: str = "shrink") -> Order:
    return Order(generation=generation, kind=kind, go=go, batch=batch, lr_scale=2.0, nodes=nodes)


def once(fact: Callable[[], bool], act: Callable[[], None]) -> None:
    def look() -> None:
        deadline = time.monotonic() + 180
        while not fact() and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    threading.Thread(target=look, daemon=True).start()


def spoken(folder: RunFolder) -> Callable[[], bool]:
    return lambda: (word := folder.read_word()) is not None and word.generation >= 0


def test_without_orders_it_trains_to_the_end(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("follow", 0.5))
    assert rehearsal.run() == 0
    assert daemon.phases() == [Phase.STARTING, Phase.TRAINING, Phase.FINISHED]
    assert daemon.heard[-1].progress is not None
    assert daemon.heard[-1].progress.samples == 50
    (line,) = folder.generations()
    assert (line.ended_why, line.nodes, line.last_samples) == ("finished", ("c1", "c2"), 50)


def test_a_shrink_is_leave_left_go(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("follow", 30), ("follow", 0.5))

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.TRAINING and sync.generation == 0:
            daemon.order = order(1, go=False)
        if sync.phase == Phase.LEFT and sync.generation == 1:
            rehearsal.held.held = ("c1",)
            daemon.order = order(1, go=True, nodes=("c1",))

    daemon.answer = plan
    assert rehearsal.run() == 0
    assert daemon.phases()[:6] == ["starting", "training", "leaving", "left", "starting", "training"]
    assert [(g.number, g.nodes, g.batch, g.lr_scale) for g in rehearsal.started] == [
        (0, ("c1", "c2"), 64, 1.0),
        (1, ("c1",), 128, 2.0),
    ]
    assert [line.ended_why for line in folder.generations()] == ["shrink", "finished"]
    assert folder.read_order() is None


def test_a_standing_order_is_entered_at_the_start(folder: RunFolder, daemon: Daemon) -> None:
    daemon.order = order(4, go=True, nodes=("c1", "c2"), batch=256, kind="requeue")
    rehearsal = Rehearsal(folder, daemon, ("follow", 0.3))
    assert rehearsal.run() == 0
    assert [(g.number, g.batch) for g in rehearsal.started] == [(4, 256)]


def test_the_first_order_of_a_daemon_that_asks_slurm_before_it_gives_one_is_waited_for(
    folder: RunFolder, daemon: Daemon
) -> None:
    daemon.greets = True
    once(lambda: len(daemon.heard) == 1, lambda: setattr(daemon, "order", order(1, go=True, kind="start")))
    rehearsal = Rehearsal(folder, daemon, ("follow", 0.3))
    assert rehearsal.run() == 0
    assert [g.number for g in rehearsal.started] == [1]


def test_a_restart_before_go_waits_for_it(folder: RunFolder, daemon: Daemon) -> None:
    daemon.order = order(4, go=False, kind="requeue")

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.LEFT:
            daemon.order = order(4, go=True, kind="requeue")

    daemon.answer = plan
    rehearsal = Rehearsal(folder, daemon, ("follow", 0.3))
    assert rehearsal.run() == 0
    assert [g.number for g in rehearsal.started] == [4]


@pytest.mark.parametrize(("held", "used"), [(("c1", "c3"), ("c1", "c3")), (None, ("c1",))])
def test_the_nodes_are_those_that_slurm_says_and_the_orders_only_where_it_is_silent(
    held: tuple[str, ...] | None, used: tuple[str, ...], folder: RunFolder, daemon: Daemon
) -> None:
    daemon.order = order(1, go=True, nodes=("c1",))
    rehearsal = Rehearsal(folder, daemon, ("follow", 0.3))
    rehearsal.held.held = held
    assert rehearsal.run() == 0
    assert rehearsal.started[0].nodes == used


def test_a_job_that_cannot_save_declines_and_trains_on(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("decline", 2.0))
    once(spoken(folder), lambda: setattr(daemon, "order", order(1, go=False)))

    def plan(sync: Sync) -> None:
        if sync.declined is not None:
            daemon.order = None

    daemon.answer = plan
    assert rehearsal.run() == 0
    declined = [sync.declined for sync in daemon.heard if sync.declined is not None]
    assert declined[-1].generation == 1
    assert declined[-1].reason == "disk full"
    assert len(rehearsal.started) == 1
    assert folder.read_order() is None


def test_a_withdrawn_order_changes_nothing(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("ignore", 2.5))
    once(spoken(folder), lambda: setattr(daemon, "order", order(1, go=False)))

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.LEAVING:
            daemon.order = None

    daemon.answer = plan
    assert rehearsal.run() == 0
    assert daemon.phases() == ["starting", "training", "leaving", "training", "finished"]
    assert len(rehearsal.started) == 1


def test_ranks_that_do_not_leave_in_time_are_let_be(folder: RunFolder, daemon: Daemon) -> None:
    daemon.answer = lambda sync: setattr(daemon, "order", order(1, go=False)) if sync.phase == "training" else None
    rehearsal = Rehearsal(folder, daemon, ("ignore", 3.0))
    rehearsal.leave_timeout_s = 0.5
    assert rehearsal.run() == 0
    assert "not left within 0.5 s" in str(daemon.heard[-1].declined)


def test_when_the_daemon_dies_after_left_it_goes_on_where_slurm_says(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("follow", 30), ("follow", 0.5))
    rehearsal.leave_timeout_s = 1.0

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.TRAINING:
            daemon.order = order(1, go=False)
        if sync.phase == Phase.LEFT:
            rehearsal.held.held = ("c1",)
            daemon.away = True

    daemon.answer = plan
    assert rehearsal.run() == 0
    assert [(g.number, g.nodes, g.batch) for g in rehearsal.started] == [(0, ("c1", "c2"), 64), (0, ("c1",), 64)]


def test_a_daemon_that_was_never_there_costs_one_warning(
    folder: RunFolder, daemon: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    daemon.away = True
    rehearsal = Rehearsal(folder, daemon, ("follow", 2.0))
    assert rehearsal.run() == 0
    assert capfd.readouterr().err.count("onesd does not answer") == 1


def test_a_failed_step_ends_the_job_with_its_code_and_names_the_rank(
    folder: RunFolder, daemon: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    rehearsal = Rehearsal(folder, daemon, ("crash", 0))
    assert rehearsal.run() == 7
    assert daemon.phases()[-1] == Phase.FAILED
    assert "the step failed with exit code 7: rank 0 on" in capfd.readouterr().err


def test_code_75_without_a_saved_state_is_a_failure(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon)
    rehearsal.start = lambda generation: LocalStep(  # type: ignore[method-assign]
        [sys.executable, "-c", f"raise SystemExit({LEFT_CODE})"], os.environ, 1, foreign=True
    )
    assert rehearsal.run() == LEFT_CODE


def test_ranks_that_die_as_nodes_go_away_are_started_anew(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("crash", 0), ("follow", 0.5))
    rehearsal.held.held = ("c1",)
    assert rehearsal.run() == 0
    assert [g.nodes for g in rehearsal.started] == [("c1", "c2"), ("c1",)]
    assert [line.ended_why for line in folder.generations()] == ["nodes changed", "finished"]


def test_the_save_signal_saves_and_requeues(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("follow", 30))
    wrapper = rehearsal.wrapper()
    once(spoken(folder), wrapper.on_save_signal)
    once(lambda: bool(rehearsal.held.requeues), wrapper.on_term)
    assert wrapper.run(Generation(number=0, nodes=("c1", "c2"), ranks_per_node=1, batch=64)) == 128 + signal.SIGTERM
    assert len(rehearsal.held.requeues) == 1
    assert [(line.ended_why, line.last_step) for line in folder.generations()] == [("requeue", 9)]
    assert daemon.phases()[-1] == Phase.LEFT


def test_a_job_that_may_not_be_requeued_says_so(
    folder: RunFolder, daemon: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    rehearsal = Rehearsal(folder, daemon, ("follow", 30))
    rehearsal.held.refusal = "Requested operation is presently disabled"
    wrapper = rehearsal.wrapper()
    once(spoken(folder), wrapper.on_save_signal)
    assert wrapper.run(Generation(number=0, nodes=("c1",), ranks_per_node=1, batch=64)) == 1
    assert "saved, but the job cannot be requeued (Requested operation is presently disabled)" in capfd.readouterr().err


def test_term_is_passed_on_and_nobody_calls_it_a_failure(folder: RunFolder, daemon: Daemon) -> None:
    rehearsal = Rehearsal(folder, daemon, ("ignore", 30))
    wrapper = rehearsal.wrapper()
    once(lambda: "training" in daemon.phases(), wrapper.on_term)
    assert wrapper.run(Generation(number=0, nodes=("c1",), ranks_per_node=1, batch=64)) == 143
    assert daemon.phases() == ["starting", "training"]


def test_a_foreign_script_is_signalled_and_comes_back_with_fresh_numbers(
    folder: RunFolder, daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    log, foreign = tmp_path / "log", tmp_path / "foreign.py"
    foreign.write_text(FOREIGN)
    rehearsal = Rehearsal(folder, daemon)
    rehearsal.script = Script(
        command=(sys.executable, str(foreign), "{checkpoint}", "{local_batch}", "{lr}", str(log)), lr=0.5
    )

    def start(generation: Generation) -> LocalStep:
        rehearsal.started.append(generation)
        command = rehearsal.script.for_generation(generation, folder)
        return LocalStep(command, os.environ, 1, foreign=True)

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.LEFT:
            rehearsal.held.held = ("c1",)
            daemon.order = order(1, go=True, nodes=("c1",))

    daemon.answer = plan
    rehearsal.start = start  # type: ignore[method-assign]
    once(log.exists, lambda: setattr(daemon, "order", order(1, go=False)))
    assert rehearsal.run() == 0
    first, second = log.read_text().splitlines()
    assert first == "from 0 batch 32 lr 0.5"
    assert second.endswith("batch 128 lr 1")
    assert 0 < int(second.split()[1]) < 100


def test_a_foreign_script_hit_before_it_listens_is_started_anew(
    folder: RunFolder, daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    mark = tmp_path / "mark"
    deaf = f"import pathlib,time; m=pathlib.Path({str(mark)!r}); time.sleep(0 if m.exists() else (m.touch() or 30))"
    rehearsal = Rehearsal(folder, daemon)
    rehearsal.script = Script(command=(sys.executable, "-c", deaf, "{world}"))
    rehearsal.start = lambda generation: LocalStep(  # type: ignore[method-assign]
        list(rehearsal.script.command), os.environ, 1, foreign=True
    )

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.LEFT:
            daemon.order = order(1, go=True)

    daemon.answer = plan
    once(mark.exists, lambda: setattr(daemon, "order", order(1, go=False)))
    assert rehearsal.run() == 0
    assert [line.ended_why for line in folder.generations()] == ["shrink", "finished"]


def killed(step: int, *, by: int = 0) -> type:
    """A generation that comes as far as `step`; then its rank is killed, or with `by` its srun by that signal."""

    class Killed:
        direct = True
        refused = ""
        cause = None if by else Cause("0", "c1", "Killed")

        def __init__(self, folder: RunFolder, generation: Generation) -> None:
            word = Word(generation=generation.number, first_step=5, progress=Progress(step=step))
            folder.write_word(word)

        def poll(self) -> int:
            return -by if by else 137

    return Killed


def deaths(folder: RunFolder, daemon: Daemon, *steps: Callable[..., object]) -> tuple[int, Rehearsal]:
    """The exit code of a run whose generations end like that, and then one that trains to the end."""
    rehearsal, left = Rehearsal(folder, daemon, ("follow", 0.3)), list(steps)
    local = rehearsal.start
    rehearsal.start = lambda generation: left.pop(0)(folder, generation) if left else local(generation)  # type: ignore[assignment]
    return rehearsal.run(), rehearsal


def test_a_second_death_before_the_first_is_made_up_for_is_survived(folder: RunFolder, daemon: Daemon) -> None:
    code, _ = deaths(folder, daemon, killed(70), killed(60))
    assert code == 0
    assert [line.ended_why for line in folder.generations()] == ["ranks died", "ranks died", "finished"]


def test_a_script_that_dies_at_the_same_step_again_and_again_fails(folder: RunFolder, daemon: Daemon) -> None:
    code, _ = deaths(folder, daemon, killed(70), killed(69), killed(70), killed(70))
    assert code == 137


def test_a_script_that_dies_before_its_first_step_fails(folder: RunFolder, daemon: Daemon) -> None:
    code, _ = deaths(folder, daemon, killed(5))
    assert code == 137


def test_a_killed_srun_costs_no_job_and_its_tasks_are_ended_first(folder: RunFolder, daemon: Daemon) -> None:
    code, rehearsal = deaths(folder, daemon, killed(70, by=9))
    assert code == 0
    assert rehearsal.held.steps_ended == 1
    assert [line.ended_why for line in folder.generations()] == ["srun died", "finished"]


# As a slurmctld that has just come up has it, which does not know yet that the last step is over.
NO_STEP = "srun: error: Unable to create step for job 6: Memory required by task is not available"


def not_created(_folder: RunFolder, _generation: Generation) -> SrunStep:
    return SrunStep(["sh", "-c", f"echo '{NO_STEP}' >&2; exit 1"], os.environ)


def test_a_step_that_slurm_does_not_create_is_asked_for_again(
    folder: RunFolder, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrapper_module, "_ASK_AGAIN_S", 0.1)
    code, _ = deaths(folder, daemon, not_created, not_created)
    assert code == 0
    assert [line.ended_why for line in folder.generations()] == ["not created", "not created", "finished"]


def test_but_not_for_ever(folder: RunFolder, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapper_module, "_ASK_AGAIN_S", 0.1)
    monkeypatch.setattr(wrapper_module, "_CREATED_WITHIN_S", 0.0)
    code, _ = deaths(folder, daemon, not_created)
    assert code == 1


def test_a_job_that_gets_no_step_any_more_goes_back_into_the_queue(
    folder: RunFolder, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slurmctld that was killed may believe for ever in a step that is no more, and srun would wait for its end."""
    monkeypatch.setattr(step_module, "_CREATED_WITHIN_S", 0.0)
    monkeypatch.setattr(wrapper_module, "_CREATED_WITHIN_S", 0.0)
    waits = "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)"
    rehearsal = Rehearsal(folder, daemon, ("follow", 30))
    local, started = rehearsal.start, []

    def start(generation: Generation) -> object:
        started.append(generation)
        waiting = ["sh", "-c", f"echo '{waits}' >&2; exec sleep 60"]
        return local(generation) if len(started) == 1 else SrunStep(waiting, os.environ)

    def plan(sync: Sync) -> None:
        if sync.phase == Phase.TRAINING:
            daemon.order = order(1, go=False)
        if sync.phase == Phase.LEFT:
            daemon.order = order(1, go=True)

    rehearsal.start, daemon.answer = start, plan  # type: ignore[assignment]
    wrapper = rehearsal.wrapper()
    once(lambda: bool(rehearsal.held.requeues), wrapper.on_term)
    assert wrapper.run(Generation(number=0, nodes=("c1",), ranks_per_node=1, batch=64)) == 128 + signal.SIGTERM
    assert len(rehearsal.held.requeues) == 1
    assert [line.ended_why for line in folder.generations()] == ["shrink", "not created"]
