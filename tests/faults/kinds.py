"""Every kind of fault: how it is done, and how it is mended. Each returns what it hit, None where nothing was."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ground import STATE_DIR, Ground, Process
from schedule import Fault
from stream import Stream, Training

Kind = TypeVar("Kind")
# How long a fault that wants a move in progress waits for one. Ours: jobs come and go every few seconds.
MOVE_WITHIN_S = 20.0
FLAP_S = 0.3
SAVED_AFTER_S = 6.0
# The same for a training that has done something new. Ours: a start and a second of training.
RIPE_WITHIN_S = 15.0


class Faults:
    """Does the faults of a schedule to a ground with a stream of trainings, one at a time."""

    def __init__(self, ground: Ground, stream: Stream) -> None:
        self._ground, self._stream = ground, stream
        # Trainings whose job may end because of what was done to it; they are submitted anew.
        self.killed: set[str] = set()

    def do(self, fault: Fault) -> str | None:
        """Hurts, waits and mends; returns the victim, None when there was none."""
        kind = fault.kind
        special: dict[str, Callable[[Fault], str | None]] = {
            "kill onesd": self._kill_onesd,
            "kill onesd in a move": lambda f: self._await_move() and self._kill_onesd(f),
            "second onesd": self._second_onesd,
            "broken site file": self._broken_site_file,
            "kill slurmctld in a move": lambda f: self._await_move() and self._kill_service("slurmctld", f),
            "cut node": self._cut,
            "flapping node": self._flap,
            "disk full for a checkpoint": self._full_for_checkpoint,
            "disk full for the journal": self._full_for_journal,
        }
        if kind in special:
            return special[kind](fault)
        verb, _, what = kind.partition(" ")
        if verb == "stop":
            return self._stop(what, fault)
        if what in ("worker", "ones-run", "srun"):
            return self._kill_one(what, fault)
        return self._kill_service(what, fault)

    def _kill_onesd(self, fault: Fault) -> str:
        self._ground.end_daemon(signal.SIGKILL)
        time.sleep(fault.lasts_s)
        self._ground.start_daemon()
        return "onesd"

    def _second_onesd(self, fault: Fault) -> str:
        said = self._ground.lab.run(["onesd"], user="operator", host="head", check=False)
        assert said.returncode == 1, f"a second onesd ended with {said.returncode}: {said.stderr}"
        assert "another onesd" in said.stderr, said.stderr
        return "onesd"

    def _broken_site_file(self, fault: Fault) -> str:
        """An edit in a hurry and a restart of onesd; jobs that start meanwhile read the file too."""
        # A job in its first run has nothing to fall back on, and is refused with the reason: there shall be none.
        self._ground.until(self._stream.all_have_begun, "every job has begun")
        place, good = self._ground.site_file, self._ground.site_file.read_text()
        place.write_text(good.replace("interval_s", "intervall_s", 1))
        try:
            assert self._ground.end_daemon(signal.SIGTERM) == 0
            said = self._ground.lab.run(["onesd"], user="operator", host="head", check=False)
            assert said.returncode == 2, f"onesd took a broken site file: {said.returncode} {said.stderr}"
            assert "interval_s" in said.stderr, said.stderr
            time.sleep(fault.lasts_s)
        finally:
            place.write_text(good)
        self._ground.start_daemon()
        return "onesd"

    def _await_move(self) -> bool:
        """True when a job is being moved, and when none is for a long time."""
        deadline = time.monotonic() + MOVE_WITHIN_S
        while time.monotonic() < deadline:
            text = self._ground.log.read_text()[-4000:].splitlines()
            if text and ("is told to leave" in text[-1] or "held" in text[-1] or "is released" in text[-1]):
                break
            time.sleep(0.02)
        return True

    def _kill_service(self, name: str, fault: Fault) -> str:
        if name == "slurmd":
            name = f"slurmd-{chosen(self._ground.lab.spec.node_names, fault)}"
        if name == "slurmctld":
            # It saves its state every 5 s at most. A job submitted since is lost with it, with whoever's help.
            time.sleep(max(0.0, self._stream.submitted_s + SAVED_AFTER_S - time.monotonic()))
        self._ground.lab.kill_service(name)
        time.sleep(fault.lasts_s)
        self._ground.lab.start_service(name)
        return name

    def _stop(self, what: str, fault: Fault) -> str | None:
        process: Process | None
        if what == "onesd":
            daemon = self._ground.daemon
            assert daemon is not None
            daemon.send_signal(signal.SIGSTOP)
            time.sleep(fault.lasts_s)
            daemon.send_signal(signal.SIGCONT)
            return what
        if what in ("worker", "ones-run"):
            found = self._of_a_training(what, fault)
            name, process = (found[0].name, found[1]) if found else ("", None)
        else:
            name = f"slurmd-{chosen(self._ground.lab.spec.node_names, fault)}" if what == "slurmd" else what
            process = self._ground.service_process(name)
        if process is None:
            return None
        self._ground.signal(process, signal.SIGSTOP)
        time.sleep(fault.lasts_s)
        self._ground.signal(process, signal.SIGCONT)
        return name

    def _kill_one(self, what: str, fault: Fault) -> str | None:
        found = self._of_a_training(what, fault)
        if found is None:
            return None
        training, process = found
        if what == "ones-run":
            self.killed.add(training.name)
        self._ground.signal(process, signal.SIGKILL)
        time.sleep(fault.lasts_s)
        return training.name

    def _cut(self, fault: Fault) -> str:
        node = chosen(self._ground.lab.spec.node_names, fault)
        self._link(node, "down")
        time.sleep(fault.lasts_s)
        self._link(node, "up")
        return node

    def _flap(self, fault: Fault) -> str:
        """As this kernel has no netem: the cable is loose, which loses packets and delays others."""
        node = chosen(self._ground.lab.spec.node_names, fault)
        deadline = time.monotonic() + fault.lasts_s
        while time.monotonic() < deadline:
            for how in ("down", "up"):
                self._link(node, how)
                time.sleep(FLAP_S)
        return node

    def _link(self, node: str, how: str) -> None:
        """The cable to a node, pulled out and put in at the bridge, so that the node's own routes stay."""
        bridge = f"--net=/proc/{self._ground.lab._built.holder_pid}/ns/net"
        subprocess.run(["nsenter", bridge, "ip", "link", "set", node, how], check=True)

    def _full_for_checkpoint(self, fault: Fault) -> str | None:
        """A write limit of 0 bytes on rank 0: each write fails, with EFBIG instead of ENOSPC."""
        found = self._of_a_training("rank 0", fault)
        if found is None:
            return None
        training, process = found
        for limit in ("0", "unlimited"):
            argv = ("prlimit", f"--pid={process.pid}", f"--fsize={limit}:unlimited")
            self._ground.as_root(*argv, host=process.host, check=False)
            if limit == "0":
                time.sleep(fault.lasts_s)
        return training.name

    def _full_for_journal(self, fault: Fault) -> str:
        filler = f"{STATE_DIR}/filler"
        self._ground.as_root("dd", "if=/dev/zero", f"of={filler}", "bs=64k", check=False)
        time.sleep(fault.lasts_s)
        self._ground.as_root("rm", "-f", filler)
        return "onesd"

    def _of_a_training(self, what: str, fault: Fault) -> tuple[Training, Process] | None:
        """A process of some training that has trained in its present run, chosen by chance; one is waited for."""
        deadline = time.monotonic() + RIPE_WITHIN_S
        while (found := self._find(what, fault)) is None and time.monotonic() < deadline:
            self._stream.feed()
            time.sleep(0.5)
        return found

    def _find(self, what: str, fault: Fault) -> tuple[Training, Process] | None:
        self._stream.look()
        ripe = {training.job_id: training for training in self._stream.running() if has_trained(training)}
        found = []
        for host in self._ground.lab.spec.node_names:
            for process in self._ground.processes(host):
                training = ripe.get(process.env.get("SLURM_JOB_ID", ""))
                if training is not None and is_a(what, process):
                    found.append((training, process))
        if what == "srun":  # which has a helper that nobody misses, started after it
            found = list({training.name: (training, process) for training, process in reversed(found)}.values())
        return chosen(found, fault) if found else None


def is_a(what: str, process: Process) -> bool:
    """Whether a process plays that part."""
    words = [word.rpartition("/")[2] for word in process.argv[:4]]
    if what == "srun":
        return words[0] == "srun"
    if what == "ones-run":
        return "ones-run" in words[:2]
    worker = "emulated.py" in words[:2]
    return worker and (what == "worker" or process.env.get("RANK") == "0")


def has_trained(training: Training) -> bool:
    """Whether its present run has done something new, and said so: before, a death is its script's own fault."""
    with contextlib.suppress(OSError):
        word = training.word()
        return word is not None and word.generation >= 0 and word.progress.step > word.first_step + 5
    return False


def chosen(things: Sequence[Kind], fault: Fault) -> Kind:
    return things[int(fault.victim * len(things))]
