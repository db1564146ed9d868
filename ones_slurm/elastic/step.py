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
_LEFT_WORDS = f"Exited with exit code {LEFT_CODE}"
# Ours: how long ranks have to notice that one of them is gone, and to end after a polite and a rude signal.
_NOTICE_S = 10.0
_END_S = 10.0


class Cause(msgspec.Struct, frozen=True):
    """The first rank that ended otherwise than it should, by time."""

    rank: str
    host: str
    how: str


class Step(Protocol):
    """What the wrapper asks of a running generation.

    `direct`: signals reach the ranks from the start. An srun that is signalled before it has set up dies of it.
    """

    cause: Cause | None
    direct: bool

    def poll(self) -> int | None:
        """None while any rank runs, then the step's exit code. Ends a step whose ranks wait for one that is gone."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to every rank."""
        ...

    def end(self) -> int:
        """Ends all ranks, politely first; returns the exit code."""
        ...


class SrunStep:
    """A job step. `srun` forwards signals to its tasks, and says on its standard error how each of them ended."""

    direct = False

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.cause: Cause | None = None
        self._noticed_s: float | None = None
        self._srun = subprocess.Popen(
            command, env=dict(env), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        )
        self._listener = threading.Thread(target=self._listen, name="srun-stderr", daemon=True)
        self._listener.start()

    def poll(self) -> int | None:
        if self.cause is not None and self._noticed_s is None:
            self._noticed_s = time.monotonic()
        if self._srun.poll() is None and self._noticed_s is not None and time.monotonic() - self._noticed_s > _NOTICE_S:
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
            ended = _TASK_ENDED.fullmatch(raw.decode(errors="replace"))
            if ended is not None and ended[3] == _LEFT_WORDS:
                continue  # that is how a rank makes room; nobody has to be alarmed
            if ended is not None and self.cause is None:
                self.cause = Cause(ended[2], ended[1], ended[3])
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(raw)
                sys.stderr.buffer.flush()


class LocalStep:
    """`ranks` processes on this machine, for a laptop: rank 0 gets a listening socket, as `ones-rank` would give it."""

    direct = True

    def __init__(self, command: Sequence[str], env: Mapping[str, str], ranks: int, *, foreign: bool) -> None:
        self.cause: Cause | None = None
        self._noticed_s: float | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            if foreign:
                listening.close()
            for rank in range(ranks):
                world = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                }
                pass_on = [listening.fileno()] if rank == 0 and not foreign else []
                if pass_on:
                    world["ONES_STORE_FD"] = str(pass_on[0])
                self._processes.append(
                    subprocess.Popen(command, env={**env, **world}, pass_fds=pass_on, process_group=0)
                )

    def poll(self) -> int | None:
        codes = [process.poll() for process in self._processes]
        bad = [(rank, code) for rank, code in enumerate(codes) if code not in (None, 0, LEFT_CODE)]
        if bad and self.cause is None:
            rank, code = bad[0]
            how = f"Exited with exit code {code}" if code > 0 else signal.strsignal(-code) or f"signal {-code}"
            self.cause = Cause(str(rank), os.uname().nodename, how)
            self._noticed_s = time.monotonic()
        if any(code is None for code in codes):
            overdue = self._noticed_s is not None and time.monotonic() - self._noticed_s > _NOTICE_S
            return self.end() if overdue else None
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

    def _code(self) -> int:
        """As srun has it: the highest exit code, 128 + n for signal n."""
        return max(code if code >= 0 else 128 - code for code in (process.wait() for process in self._processes))
