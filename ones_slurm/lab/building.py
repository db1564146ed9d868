"""From nothing to a cluster that takes jobs: the steps of `Lab.up`, each of which can fail with a log to look at."""

import os
import secrets
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from ones_slurm.model.errors import Failed, UsageError

from . import people
from .blueprint import Blueprint, Built
from .codec import from_json, to_json
from .hosts import CHECKOUT, Hosts, search_path
from .services import Services, mariadb_options
from .site_file import site_file
from .slurm_conf import DATABASE, GPU_FOLDER, config_files
from .spec import PROFILES, USERS, LabSpec
from .state import LabState, start_ticks

# Ours, as generous as for the daemons.
NODES_READY_WITHIN_S = 120.0
# munged's own default; any length from 32 to 1024 bytes is accepted.
MUNGE_KEY_BYTES = 128
EVERYBODY_READS = stat.S_IROTH | stat.S_IXOTH


def slurm_version() -> str:
    """The installed release, as in "22.05.8"."""
    shown = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    return shown.split()[1]


def write_folder(state: LabState) -> None:
    """All files of the lab: nothing in them is taken from the machine but the lines of its passwd and group files."""
    spec, folder = state.spec, state.folder
    year, month = state.slurm_version.split(".")[:2]
    for sub in ("etc", "slurm", "home", "log", "state/slurmctld", "spool", "database", "tmp"):
        (folder / sub).mkdir(parents=True)
        # Whatever root's umask is.
        (folder / sub).chmod(0o755)
    for private in ("database", "state"):
        (folder / private).chmod(0o700)
    for host in spec.addresses:
        (folder / "tmp" / host).mkdir()
        (folder / "tmp" / host).chmod(0o1777)
    for user in USERS:
        home = folder / "home" / user.name
        home.mkdir()
        # Login shells (`bash -l`, sbatch --export=NONE) begin with the system's PATH.
        _write(home / ".profile", f"export PATH={search_path()}\n".encode(), 0o644)
        for path in (home, home / ".profile"):
            os.chown(path, user.uid, user.uid)
    etc = people.account_files() | {
        "hosts": (people.hosts_file(spec.addresses), 0o644),
        # slurmdbd would create it, but not with Debian 13's client library 11.8.9: there the connection that finds no
        # database is broken ever after ("Number of columns in result (=1) ... (=0)"), and slurmdbd gives up.
        "database.sql": (f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n", 0o644),
    }
    slurm = {"ones.toml": (site_file(spec), 0o644)} | config_files(spec, folder, (int(year), int(month)))
    for where, files in (("etc", etc), ("slurm", slurm)):
        for name, (text, mode) in files.items():
            _write(folder / where / name, text.encode(), mode)
    _write(folder / "etc" / "munge.key", secrets.token_bytes(MUNGE_KEY_BYTES), 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.touch(mode=mode)
    path.chmod(mode)
    path.write_bytes(content)


class Head:
    """The lab's first process while it is being built; closing the line to it before `keep` ends the lab."""

    def __init__(self, claimed: LabState, shares: tuple[Path, ...]) -> None:
        spec, folder = claimed.spec, claimed.folder
        self.log = folder / "log" / "head.log"
        blueprint = Blueprint(
            name=spec.name,
            folder=folder,
            addresses=spec.addresses,
            shares=shares,
            gpu_folder=GPU_FOLDER,
            gpus=spec.gpus_per_node if PROFILES[spec.profile].gres else 0,
        )
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ones_slurm.lab.head"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=CHECKOUT,
                env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
                # Ctrl-C in the terminal is for the starter, whose end the head sees anyway.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._line: IO[bytes] = self._process.stdin
        self._line.write(to_json(blueprint) + b"\n")
        self._line.flush()
        answer = self._process.stdout
        pid = int(answer.readline() or b"0")
        built = answer.readline()
        answer.close()
        self._process.wait()
        ticks = start_ticks(pid) if pid else None
        if not built or ticks is None:
            self.abandon()
            raise Failed(f"the lab's hosts could not be built:\n{self.log.read_text()}", hint=f"its log: {self.log}")
        self.state = msgspec.structs.replace(
            claimed,
            holder_pid=pid,
            holder_start_ticks=ticks,
            host_pids=from_json(built, Built).host_pids,
        )

    def keep(self) -> None:
        """From here on the lab outlives its starter."""
        self._line.write(b"keep\n")
        self._line.close()

    def abandon(self) -> None:
        """Let the lab end, if it has not."""
        self._line.close()


def shared_folders(spec: LabSpec) -> tuple[Path, ...]:
    """What job users must be able to read: this Python, the interpreter below it, this package, and what was asked.

    The lab can open a way to a folder, but not the folder itself: its mode is the machine's.
    """
    folders = (Path(sys.prefix), Path(sys.base_prefix), CHECKOUT, *spec.shares)
    for folder in folders:
        if not folder.is_dir() or folder.stat().st_mode & EVERYBODY_READS != EVERYBODY_READS:
            raise UsageError(f"{folder} must be a folder that everybody may read", hint=f"chmod o+rx {folder}")
    return tuple(folder.resolve() for folder in folders)


def start_daemons(state: LabState, hosts: Hosts, services: Services, progress: Callable[[str], None]) -> None:
    """Bring up the daemons in the one order that works, and return when every node is idle."""
    spec, folder = state.spec, state.folder
    progress("munge and database")
    install_log = folder / "log" / "mariadb-install.log"
    with install_log.open("wb") as log:
        installing = hosts.popen(
            "head",
            [
                "mariadb-install-db",
                *mariadb_options(folder),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            user="root",
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    services.start("munged")
    if installing.wait() != 0:
        said = install_log.read_text()[-2000:].strip()
        raise Failed(f"the database could not be set up:\n{said}", hint=f"its log: {install_log}")
    services.start("mariadbd")
    progress("accounting")
    services.start("slurmdbd")
    _register(hosts, spec)
    progress("controller")
    services.start("slurmctld")
    progress(f"{spec.nodes} nodes")
    services.start(*(f"slurmd-{node}" for node in spec.node_names))
    _await_nodes(hosts, state)


def _register(hosts: Hosts, spec: LabSpec) -> None:
    """Tell accounting of the cluster, the accounts and the users; slurmctld refuses jobs of anybody else."""
    commands = [["add", "cluster", spec.name]]
    for user in USERS:
        commands.append(["add", "account", user.account])
        commands.append(["add", "user", user.name, f"account={user.account}", f"adminlevel={user.admin_level}"])
    for command in commands:
        argv = ["sacctmgr", "-i", "-Q", *command]
        code, said = _ask(hosts, argv)
        if code != 0:
            raise Failed(f"`{' '.join(argv)}` ended with {code}: {said.strip()}")


def _await_nodes(hosts: Hosts, state: LabState) -> None:
    deadline = time.monotonic() + NODES_READY_WITHIN_S
    while True:
        code, said = _ask(hosts, ["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T"])
        rows = [line.split() for line in said.splitlines()]
        if code == 0 and len(rows) == state.spec.nodes and all(row[1:] == ["idle"] for row in rows):
            return
        if time.monotonic() > deadline:
            raise Failed(
                f"not every node was idle within {NODES_READY_WITHIN_S:.0f} s: {said.strip()}",
                hint=f"logs: {state.folder}/log",
            )
        time.sleep(0.1)


def _ask(hosts: Hosts, argv: list[str]) -> tuple[int, str]:
    process = hosts.popen("head", argv, user="root", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = process.communicate()
    return process.returncode, said
