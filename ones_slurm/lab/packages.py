"""The Debian packages that a lab needs: which are missing, and how to install them without waking any service."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ones_slurm.model.errors import Failed, NotAllowed

POLICY = Path("/usr/sbin/policy-rc.d")

_ALWAYS = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "mariadb-server",
    "openmpi-bin",
    "iproute2",
    "util-linux",
    # Slurm's PMIx plugin opens libpmix.so without a version, a link that only the -dev package brings.
    "libpmix-dev",
)
# What mpi4py's wheels load.
_BY_RELEASE = {12: ("libopenmpi3",), 13: ("libopenmpi40",)}


@functools.cache
def debian_release() -> int:
    """12 or 13; other systems are not served, because package names and Slurm's paths differ there."""
    facts = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    release = facts.get("VERSION_ID", "")
    if facts.get("ID") != "debian" or not release.isdigit() or int(release) not in _BY_RELEASE:
        raise NotAllowed(
            f"the lab runs on Debian {' and '.join(map(str, _BY_RELEASE))}, this is {facts.get('PRETTY_NAME', '?')}"
        )
    return int(release)


def missing() -> list[str]:
    """Packages that are not installed, in the order of the list above."""
    wanted = (*_ALWAYS, *_BY_RELEASE[debian_release()])
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def ensure() -> None:
    """Install what is missing when root; otherwise say exactly what to install."""
    absent = missing()
    if not absent:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *absent]
    if os.geteuid() != 0:
        raise NotAllowed(f"packages are missing: {' '.join(absent)}", hint=f"as root: {' '.join(command)}")
    enabled_before = _enabled_links()
    with _no_service_starts():
        # A new machine has no package lists, or old ones; if they cannot be had, the installation says what is wrong.
        _apt("apt-get", "update")
        done = _apt(*command)
    for link in _enabled_links() - enabled_before:
        _disable(link)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr[-2000:].strip()}")


def _apt(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian's own way to install without starting: a policy-rc.d that answers "forbidden by policy" (101)."""
    aside = POLICY.with_name("policy-rc.d.before-ones-lab")
    if POLICY.exists() or POLICY.is_symlink():
        POLICY.rename(aside)
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
        if aside.exists() or aside.is_symlink():
            aside.rename(POLICY)


def _enabled_links() -> set[Path]:
    """What starts a service at boot: systemd's wants of a machine that is up, and the S links of System V.

    All services and not only ours, since the packages bring others along (rsync).
    """
    systemd = Path("/etc/systemd/system/multi-user.target.wants").glob("*.service")
    return {*systemd, *Path("/etc").glob("rc[S2345].d/S*")}


def _disable(link: Path) -> None:
    """Undo one enabling: through Debian's tools for System V, by the link itself where systemd may not be running."""
    if link.parent.name.startswith("rc") and shutil.which("update-rc.d"):
        subprocess.run(["update-rc.d", link.name[len("S01") :], "disable"], capture_output=True, check=False)
    else:
        link.unlink(missing_ok=True)
