"""What `ones doctor` looks at: each check answers OK, WARN or FAIL with a finding, and a remedy unless all is well.

A check never raises: what it cannot find out is its finding.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Literal

import msgspec

from ones_slurm.daemon.answers import State
from ones_slurm.daemon.auth import user_name
from ones_slurm.model.errors import NotAllowed, OnesError, Unreachable
from ones_slurm.model.settings import Site, load_site, site_path
from ones_slurm.peer import munge
from ones_slurm.peer.client import Client
from ones_slurm.slurm.choose import choose_client
from ones_slurm.slurm.probe import SiteFacts, probe
from ones_slurm.slurm.releases import Release

Level = Literal["OK", "WARN", "FAIL"]

COMMANDS = ("sbatch", "scontrol", "squeue", "sinfo", "srun", "sacct", "sacctmgr")
# Ours: Slurm's commands give up after MessageTimeout (10 s) by themselves, so this ends only what hangs.
_COMMAND_WITHIN_S = 20.0
_OLDEST = Release(22, 5)


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
    try:
        facts = probe(user_name(os.getuid()))
    except OnesError as error:
        yield Check("slurmctld", "FAIL", error.message, error.hint or "look at the state of slurmctld")
        return
    yield from _facts(facts, site)


def _facts(facts: SiteFacts, site: Site) -> Iterator[Check]:
    """What the running Slurm allows, and what its accounting keeps."""
    yield Check("slurmctld", "OK", f"cluster {facts.cluster} answers, Slurm {facts.version}")
    yield from _release(facts)
    for name, possible, wanted, word in (
        ("shrink", facts.can_shrink, site.moves.shrink, "shrink"),
        ("requeue", facts.can_requeue, site.moves.requeue, "requeue"),
    ):
        why = "; ".join(line for line in facts.ruled_out if word in line)
        if not wanted:
            yield Check(name, "OK", f"switched off by moves.{name} in the site file")
        elif possible:
            yield Check(name, "OK", "allowed")
        else:
            yield Check(
                name, "WARN", why, f"change it in slurm.conf, or set moves.{name} = false to say that it is meant"
            )
    yield _rights(facts)
    yield from _accounting(facts, site)


def _release(facts: SiteFacts) -> Iterator[Check]:
    release = Release.parse(facts.version)
    if release < _OLDEST:
        yield Check("slurm release", "WARN", f"{release} is older than any that was tried", f"{_OLDEST} or newer")
    elif any(facts.version in line for line in facts.ruled_out):
        yield Check("slurm release", "WARN", f"{release} has a fault that resizing wakes", "update slurmctld")
    else:
        yield Check("slurm release", "OK", f"{release} has no known fault")


def _rights(facts: SiteFacts) -> Check:
    if facts.is_operator:
        return Check("rights", "OK", f"{facts.user} may move the jobs of all users")
    finding = f"{facts.user} may move own jobs only (level {facts.admin_level})"
    return Check(
        "rights", "OK", f"{finding}: enough for commands, jobs and `onesd --user`, not for a onesd for everybody"
    )


def _accounting(facts: SiteFacts, site: Site) -> Iterator[Check]:
    """slurmdbd and what it keeps; the report can do with less, and says less then."""
    if not facts.accounting:
        yield Check("slurmdbd", "WARN", "this cluster has none", "the report then has onesd's journal only")
        return
    try:
        choose_client()[0].accounting(since_s=time.time() - 60.0, user=facts.user)
    except OnesError as error:
        yield Check("slurmdbd", "FAIL", error.message, error.hint or "look at the state of slurmdbd")
        return
    yield Check("slurmdbd", "OK", "answers")
    if facts.comment_in_accounting:
        yield Check("comments kept", "OK", "wishes can be read from accounting")
    else:
        remedy = "set AccountingStoreFlags=job_comment in slurm.conf"
        yield Check("comments kept", "WARN", "accounting forgets job comments, and wishes with them", remedy)
    if facts.gpus_counted:
        yield Check("gpus counted", "OK", "accounting counts gres/gpu")
    elif any(partition.gpus_per_node for partition in site.partitions.values()):
        yield Check("gpus counted", "OK", "by gpus_per_node in the site file")
    else:
        remedy = "AccountingStorageTRES=gres/gpu in slurm.conf, or gpus_per_node of each partition in the site file"
        yield Check("gpus counted", "WARN", "neither Slurm nor the site file counts GPUs", remedy)


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
