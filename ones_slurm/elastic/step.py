"""A running generation: one `srun`, or without Slurm a few processes, that can be asked, watched and ended."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ones_slurm.elastic.runfolder import LEFT_CODE

_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+?)\s*")
_NOT_CREATED = re.compile(r"srun: error: Unable to (?:create step|confirm allocation) for job \d+: (.+?)\s*")
_WAITS = re.compile(r"srun: (?:Job \d+ step|Step) creation (?:temporarily|still) disabled, retrying.*\s*")
_EXITED = re.compile(r"Exited with exit code (\d+)")
# Ours: how long ranks have to notice that one of them is gone, and to end after a polite and a rude signal.
NOTICE_S = 10.0
# How long srun may wait for an earlier step of the job to be over. Ours: beyond the time that slow nodes take for it.
_CREATED_WITHIN_S = 120.0
_END_S = 10.0


class Cause(msgspec.Struct, frozen=True):
    """A rank that ended otherwise than by a plain 0. `rank` is the number of its task within the step."""

    rank: str
    host: str
    how: str

    @property
    def code(self) -> int | None:
        """Its exit code, None for one that was killed."""
        exited = _EXITED.fullmatch(self.how)
        return int(exited[1]) if exited else None


class Step(Protocol):
    """What the wrapper asks of a running generation.

    `direct`: signals reach the ranks from the start. An srun that is signalled before it has set up dies of it.
    `cause` is the first rank, by time, that ended otherwise than it should. `refused` is why Slurm has not created the
    step, "" if it has.
    """

    cause: Cause | None
    direct: bool

    @property
    def refused(self) -> str: ...

    def poll(self) -> int | None:
        """None while any rank runs, then the step's exit code. Ends a step whose ranks wait for one that is gone."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to every rank."""
        ...

    def end(self) -> int:
        """Ends all ranks, politely first; returns the exit code."""
        ...


class TaskedStep(Step, Protocol):
    """A step that tells of each task. `endings` are all that did not end with 0, in the order in which they were seen.
    With `patient`, somebody else decides what a death means."""

    endings: list[Cause]
    patient: bool


class SrunStep:
    """A job step. `srun` forwards signals to its tasks, and says on its standard error how each of them ended."""

    direct = False

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.cause: Cause | None = None
        self.refused = ""
        self.endings: list[Cause] = []
        self.patient = False
        self._noticed_s: float | None = None
        self._waits_since_s: float | None = None
        self._srun = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        )
        self._listener = threading.Thread(target=self._listen, name="srun-stderr", daemon=True)
        self._listener.start()

    def poll(self) -> int | None:
        if self.cause is not None and self._noticed_s is None:
            self._noticed_s = time.monotonic()
        waits_since_s = self._waits_since_s
        if waits_since_s is not None and time.monotonic() - waits_since_s > _CREATED_WITHIN_S:
            self.refused = "an earlier one is not over for Slurm"
            return self.end()
        overdue = self._noticed_s is not None and time.monotonic() - self._noticed_s > NOTICE_S
        if self._srun.poll() is None and overdue and not self.patient:
            return self.end()
        if self._srun.returncode is not None:
            self._listener.join(1.0)
        return self._srun.returncode

    def signal(self, number: signal.Signals) -> None:
        self._srun.send_signal(number)

    def end(self) -> int:
        """TERM is passed on to the tasks; two INT within a second end the step by force; then srun itself goes."""
        for numbers in ((signal.SIGTERM,), (signal.SIGINT, signal.SIGINT, signal.SIGINT), (signal.SIGKILL,)):
            for number in numbers:
                self._srun.send_signal(number)
                time.sleep(0.1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._srun.wait(_END_S)
        return self._srun.wait()

    def _listen(self) -> None:
        assert self._srun.stderr is not None
        for raw in self._srun.stderr:
            line = raw.decode(errors="replace")
            if (refused := _NOT_CREATED.fullmatch(line)) is not None:
                self.refused = refused[1]
            if _WAITS.fullmatch(line) is not None:
                self._waits_since_s = self._waits_since_s or time.monotonic()
            elif line.startswith("srun: Step created"):
                self._waits_since_s = None
            ended = _TASK_ENDED.fullmatch(line)
            if ended is not None:
                self.endings += [Cause(task, ended[1], ended[3]) for task in _tasks(ended[2])]
                last = self.endings[-1]
                if last.code == LEFT_CODE:
                    continue  # that is how a rank makes room; nobody has to be alarmed
                self.cause = self.cause or last
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(raw)
                sys.stderr.buffer.flush()
        self._srun.stderr.close()


class LocalStep:
    """`ranks` processes on this machine, for a laptop, spread over `nodes` that are imagined.

    Without a store of `ones-run`, rank 0 gets a listening socket, as `ones-rank` would give it.
    """

    direct = True
    refused = ""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], ranks: int, *, foreign: bool, nodes: Sequence[str] = ()
    ) -> None:
        self.cause: Cause | None = None
        self.endings: list[Cause] = []
        self.patient = False
        self._noticed_s: float | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._nodes = list(nodes) or [os.uname().nodename]
        held = "ONES_STORE" in env
        first = int(env.get("ONES_FIRST_RANK", "0"))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address, port = "127.0.0.1", str(listening.getsockname()[1])
            if held:
                address, _, port = env["ONES_STORE"].rpartition(":")
            if foreign or held:
                listening.close()
            for rank in range(ranks):
                world = {
                    "RANK": str(first + rank),
                    "WORLD_SIZE": env.get("ONES_WORLD", str(ranks)),
                    "LOCAL_RANK": str(rank % (ranks // len(self._nodes))),
                    "LOCAL_WORLD_SIZE": str(ranks // len(self._nodes)),
                    "MASTER_ADDR": address,
                    "MASTER_PORT": port,
                    "ONES_NODE": self._node(rank, ranks),
                    "ONES_TASK": str(rank),
                }
                pass_on = [listening.fileno()] if rank == 0 and not foreign and not held else []
                if pass_on:
                    world["ONES_STORE_FD"] = str(pass_on[0])
                self._processes.append(
                    subprocess.Popen(command, env={**env, **world}, pass_fds=pass_on, process_group=0)
                )

    @property
    def pids(self) -> list[int]:
        """The processes, by task."""
        return [process.pid for process in self._processes]

    def poll(self) -> int | None:
        codes = [process.poll() for process in self._processes]
        seen = {ending.rank for ending in self.endings}
        for rank, code in enumerate(codes):
            if code in (None, 0) or str(rank) in seen:
                continue
            how = f"Exited with exit code {code}" if code > 0 else signal.strsignal(-code) or f"signal {-code}"
            ending = Cause(str(rank), self._node(rank, len(codes)), how)
            self.endings.append(ending)
            if code != LEFT_CODE and self.cause is None:
                self.cause, self._noticed_s = ending, time.monotonic()
        if any(code is None for code in codes):
            overdue = self._noticed_s is not None and time.monotonic() - self._noticed_s > NOTICE_S
            return self.end() if overdue and not self.patient else None
        return self._code()

    def signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    def end(self) -> int:
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.signal(number)
            deadline = time.monotonic() + _END_S
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        return self._code()

    def _node(self, rank: int, ranks: int) -> str:
        return self._nodes[rank * len(self._nodes) // ranks]

    def _code(self) -> int:
        """As srun has it: the highest exit code, 128 + n for signal n."""
        return max(code if code >= 0 else 128 - code for code in (process.wait() for process in self._processes))


def _tasks(listed: str) -> list[str]:
    """`0,2-3` as srun writes it, one by one."""
    tasks = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        tasks += [str(task) for task in range(int(first), int(last or first) + 1)]
    return tasks
