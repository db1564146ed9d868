"""What `ones doctor` looks at: each check answers OK, WARN or FAIL with a finding, and a remedy unless all is well.

A check never raises: what it cannot find out is its finding.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

import msgspec

from ones_slurm.daemon.answers import State
from ones_slurm.model.errors import NotAllowed, OnesError, Unreachable
from ones_slurm.model.settings import Site, load_site, site_path
from ones_slurm.peer import munge
from ones_slurm.peer.client import Client

Level = Literal["OK", "WARN", "FAIL"]

COMMANDS = ("sbatch", "scontrol", "squeue", "sinfo", "srun", "sacct", "sacctmgr")
# Ours: Slurm's commands give up after MessageTimeout (10 s) by themselves, so this ends only what hangs.
_COMMAND_WITHIN_S = 20.0


class Check(msgspec.Struct, frozen=True):
    """One line of the report; `remedy` is what to do, empty when all is well."""

    name: str
    level: Level
    finding: str
    remedy: str = ""


def check_all(given: str | None) -> list[Check]:
    """Every check, the deciding ones first; with a wrong site file the others run on the defaults."""
    try:
        site, first = load_site(given), _site_found(given)
    except OnesError as error:
        site, first = Site(), Check("site file", "FAIL", error.message, error.hint or "mend the file")
    return [first, *_slurm(site), _mpi_plugin(site), _mpi4py(), _munge(site), _onesd(site)]


def _site_found(given: str | None) -> Check:
    path = site_path(given)
    return Check("site file", "OK", f"{path} is right" if path else "none, all values are defaults")


def _slurm(site: Site) -> Iterator[Check]:
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        words = f"not on the PATH: {', '.join(missing)}"
        yield Check("slurm commands", "FAIL", words, "install Slurm's client commands (Debian: slurm-client)")
        return
    yield Check("slurm commands", "OK", f"all {len(COMMANDS)} found")


def _mpi_plugin(site: Site) -> Check:
    """Whether srun can start ranks the way the site file says."""
    name, wanted = "mpi plugin", site.launcher.mpi
    remedy = f"install the plugin (Debian: slurm-wlm-basic-plugins, libpmix2), or set launcher.mpi; wanted: {wanted}"
    try:
        listed = subprocess.run(
            ["srun", "--mpi=list"], capture_output=True, text=True, timeout=_COMMAND_WITHIN_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, "FAIL", f"srun --mpi=list does not work: {error}", remedy)
    said = (listed.stdout + listed.stderr).split()
    if listed.returncode != 0:
        return Check(name, "FAIL", f"srun --mpi=list does not work: {' '.join(said)[-200:]}", remedy)
    if wanted in said:
        return Check(name, "OK", f"srun has {wanted}")
    return Check(name, "FAIL", f"srun lists {' '.join(said)[-200:]}", remedy)


def _mpi4py() -> Check:
    """Tried in a process of its own: only loading it shows whether an MPI library is there."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"],
            capture_output=True,
            text=True,
            timeout=_COMMAND_WITHIN_S,
            check=False,
        )
        said = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it fails without a word"])[-1]
    except subprocess.SubprocessError as error:
        said = str(error)
    if not said:
        return Check("mpi4py", "OK", "loads with its MPI library")
    remedy = "needed where jobs run, not here: pip install 'ones-slurm[train]', and an MPI (Debian: openmpi-bin)"
    return Check("mpi4py", "WARN", said, remedy)


def _munge(site: Site) -> Check:
    if site.daemon.auth != "munge":
        return Check("munge", "OK", 'not used: daemon.auth = "socket"')
    try:
        munge.decode(munge.encode(b"", site.daemon.munge_socket), site.daemon.munge_socket)
    except OnesError as error:
        return Check("munge", "FAIL", error.message, error.hint or "is munged running here?")
    return Check("munge", "OK", "credentials are made and checked")


def _onesd(site: Site) -> Check:
    try:
        state = Client(site.daemon).get("/v1/status", State)
    except Unreachable as error:
        return Check("onesd", "WARN", error.message, "start it, or mend the [daemon] table; without it jobs keep size")
    except NotAllowed as error:
        return Check("onesd", "FAIL", error.message, error.hint or "compare munge keys and clocks of the two hosts")
    except OnesError as error:
        return Check("onesd", "FAIL", error.message, error.hint or "look into onesd's log")
    if state.trouble:
        return Check("onesd", "WARN", f"runs, and is in trouble: {state.trouble}", "see onesd's log")
    return Check("onesd", "OK", f"{state.program} runs, mode {state.mode}, policy {state.policy}, tick {state.tick}")
