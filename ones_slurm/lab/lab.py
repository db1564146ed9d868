"""`Lab`: one throw-away Slurm cluster, from `up` to `down`, and all that a test or a person does with it meanwhile."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ones_slurm.model.errors import Failed, NotAllowed, NotFound, UsageError

from . import building, packages, state
from .hosts import Hosts
from .services import Services, service_table
from .spec import LabSpec

# A pid namespace with a hundred processes is gone within tens of milliseconds; the rest is for a swapping machine.
GONE_WITHIN_S = 60.0
# Ours: a Slurm command asks a few times with its own 10 s message timeout; tests that wait longer say so.
RUN_WITHIN_S = 120.0


def require_root() -> None:
    if os.geteuid() != 0:
        raise NotAllowed("a lab needs root, for its network and mount namespaces", hint="run it with sudo")


def _silent(_: str) -> None:
    """Say nothing: `up` is quiet unless somebody wants to watch."""


class Lab:
    """A Slurm cluster of its own on this machine: munge, MariaDB, slurmdbd, slurmctld, and a slurmd for each node.

    The cluster outlives this object and this process; `Lab.attach` finds it again, `down` ends it. As a context
    manager it is up inside the block.
    """

    def __init__(self, spec: LabSpec | None = None) -> None:
        self.spec = spec or LabSpec()
        self._known: state.LabState | None = None

    @classmethod
    def attach(cls, name: str) -> Self:
        """The lab of that name, as some process started it; NotFound if there is none."""
        if name not in state.names():
            raise NotFound(f"there is no lab '{name}'", hint=f"known here: {', '.join(state.names()) or 'none'}")
        found = state.find(name)
        lab = cls(found.spec if found else LabSpec(name=name))
        lab._known = found
        return lab

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self, progress: Callable[[str], None] = _silent) -> Self:
        """Build the cluster and return when every node is idle; `progress` is called with each step's name.

        If a step fails, everything but the folder with the logs is gone again; if a person interrupts, all is gone.
        """
        require_root()
        shares = building.shared_folders(self.spec)
        progress("packages")
        packages.ensure()
        self._known = state.claim(self.spec, building.slurm_version())
        try:
            progress("hosts and network")
            building.write_folder(self._known)
            head = building.Head(self._known, shares)
            self._known = head.state
            state.save(self._known)
            try:
                building.start_daemons(self._known, self._hosts, self._services, progress)
            except BaseException:
                head.abandon()
                raise
            head.keep()
        except Exception:
            self._end_processes()
            state.save(self._known.ended())
            raise
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """End every process of the lab at once and remove its folder; without a lab there is nothing to do."""
        require_root()
        self._known = self._known or state.find(self.spec.name)
        self._end_processes()
        self._known = None
        state.release(self.spec.name)

    @property
    def condition(self) -> Literal["up", "building", "dead"]:
        """`dead`: there is a folder with logs, and nothing that runs; `down` or the next `up` removes it."""
        if self._known is None or not self._known.alive():
            return "dead"
        return "up" if self._known.host_pids else "building"

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "user1",
        host: str = "login",
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout_s: float = RUN_WITHIN_S,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, in the user's home unless `cwd` says otherwise; `env` is added to a clean one.

        With `check`, an exit code other than 0 raises Failed with what the command said.
        """
        process = self.popen(
            argv,
            user=user,
            host=host,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(input, timeout_s)
        except BaseException:
            # Its children too: they may hold the pipes open.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        if check and done.returncode != 0:
            said = (err.strip() or out.strip())[-2000:]
            shown = " ".join(map(str, argv))
            raise Failed(f"`{shown}` ({user} on {host}) ended with {done.returncode}: {said}")
        return done

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "user1",
        host: str = "login",
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        **streams: Any,
    ) -> "subprocess.Popen[Any]":
        """Start a command and return it; its signals and exit code are the command's own. `down` ends it too.

        `streams` go to subprocess.Popen: stdin, stdout, stderr, text, start_new_session.
        """
        require_root()
        return self._hosts.popen(host, argv, user=user, cwd=cwd, env=env, **streams)

    def start_service(self, name: str) -> None:
        """Start `munged`, `mariadbd`, `slurmdbd`, `slurmctld` or `slurmd-<node>` and return when it is ready."""
        self._services.start(name)

    def stop_service(self, name: str) -> None:
        """SIGTERM to a service, as systemd would at a restart; returns when it has ended."""
        self._services.stop(name)

    def kill_service(self, name: str) -> None:
        """SIGKILL to a service, as a crash would; its children (a slurmd's job steps) live on."""
        self._services.stop(name, signal.SIGKILL)

    def stop_node(self, node: str) -> None:
        """Cut a node's power: slurmd and every job process on it die at once, without a word to slurmctld."""
        self._hosts.kill_all(node)

    def start_node(self, node: str) -> None:
        """Boot a node again: its slurmd starts and reports to slurmctld."""
        self.start_service(f"slurmd-{node}")

    @property
    def folder(self) -> Path:
        return state.folder_of(self.spec)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.spec.addresses)

    @property
    def slurm_version(self) -> str:
        """The release of the daemons, as in "22.05.8"."""
        return self._built.slurm_version

    @property
    def _built(self) -> state.LabState:
        if self._known is None or self.condition == "dead":
            raise UsageError(f"lab '{self.spec.name}' is not up", hint=f"ones lab up --name {self.spec.name}")
        if self.condition == "building":
            raise self._not_yet(self._known)
        return self._known

    @property
    def _hosts(self) -> Hosts:
        return Hosts(self._built)

    @property
    def _services(self) -> Services:
        return Services(self._hosts, service_table(self.spec, self.folder))

    def _end_processes(self) -> None:
        """SIGKILL to the head is enough, see `head.py`; it has ended only when all others have."""
        lab = self._known
        if lab is None or not lab.alive() or lab.holder_pid == os.getpid():
            return
        if self.condition == "building":
            raise self._not_yet(lab)
        os.kill(lab.holder_pid, signal.SIGKILL)
        deadline = time.monotonic() + GONE_WITHIN_S
        while lab.alive():
            Hosts.collect()
            if time.monotonic() > deadline:
                raise Failed(
                    f"lab '{self.spec.name}' did not end within {GONE_WITHIN_S:.0f} s of SIGKILL",
                    hint="a program outside that started a command in it may have to end first",
                )
            time.sleep(0.01)
        Hosts.collect()

    def _not_yet(self, lab: state.LabState) -> UsageError:
        return UsageError(
            f"lab '{self.spec.name}' is being built by process {lab.holder_pid}", hint="wait, or interrupt that one"
        )
