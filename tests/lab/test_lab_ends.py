"""A lab leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ones_slurm.lab import Lab, LabSpec, lab_names
from ones_slurm.lab import state as lab_state
from ones_slurm.model.errors import Failed, UsageError

pytestmark = pytest.mark.slurm

# Goes through `up` and waits for its end at the named step.
STOP_AT = """
import sys, time
from ones_slurm.lab import Lab, LabSpec

def stop(step):
    if step == sys.argv[2]:
        print(step, flush=True)
        time.sleep(1000)

Lab(LabSpec(name=sys.argv[1], nodes=1)).up(stop)
"""


def machine() -> dict[str, str]:
    """All that a lab might leave on the machine, other than processes: those belong to everybody here."""
    asked = {"links": ["ip", "-o", "link"], "netns": ["ip", "netns"], "users": ["getent", "passwd"]}
    seen = {key: subprocess.run(argv, capture_output=True, text=True, check=True).stdout for key, argv in asked.items()}
    return seen | {"mounts": Path("/proc/self/mounts").read_text(), "groups": Path("/etc/group").read_text()}


def namespaces(process: Path) -> set[str]:
    try:
        return {str((process / "ns" / kind).readlink()) for kind in ("pid", "mnt", "net")}
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It ended while we looked.
        return set()


def inhabitants(spaces: set[str]) -> set[str]:
    """The processes of the machine that live in one of these namespaces."""
    return {process.name for process in Path("/proc").glob("[0-9]*") if namespaces(process) & spaces}


def spaces_of(name: str) -> set[str]:
    """The namespaces of all processes below a lab's head, without those of the machine; none before there is a head."""
    state = lab_state.find(name)
    assert state is not None
    inside = Path(f"/proc/{state.holder_pid}/root/proc") if state.host_pids else Path("/nowhere")
    found = [namespaces(process) for process in inside.glob("[0-9]*")]
    return set().union(*found) - namespaces(Path("/proc/self"))


@pytest.fixture
def name() -> Iterator[str]:
    own = f"leave-{os.getpid()}"
    yield own
    if own in lab_names():
        Lab.attach(own).down()


def test_down_leaves_nothing(lab: Lab, name: str) -> None:
    before = machine()
    other = Lab(LabSpec(name=name, nodes=2)).up()
    other.popen(["sleep", "1000"], host="head", user="operator")
    other.run(["sbatch", "-o", "/dev/null", "--wrap", "sleep 1000"])
    spaces = spaces_of(name)
    assert len(inhabitants(spaces)) > 10

    other.down()

    assert inhabitants(spaces) == set()
    assert machine() == before
    assert name not in lab_names()
    assert not Path(f"/var/tmp/ones-lab/{name}").exists()
    other.down()  # a second time is no failure


@pytest.mark.parametrize("step", ["hosts and network", "munge and database", "controller", "1 nodes"])
def test_a_killed_start_leaves_nothing_but_its_folder(lab: Lab, name: str, step: str) -> None:
    before = machine()
    with subprocess.Popen([sys.executable, "-c", STOP_AT, name, step], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().strip() == step
        spaces = spaces_of(name)
        starter.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 120
    while inhabitants(spaces) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert inhabitants(spaces) == set()
    assert machine() == before
    Lab.attach(name).down()
    assert name not in lab_names()


def test_an_interrupted_start_leaves_not_even_its_folder(lab: Lab, name: str) -> None:
    before = machine()
    argv = [sys.executable, "-c", STOP_AT, name, "controller"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        spaces = spaces_of(name)
        starter.send_signal(signal.SIGINT)

    assert inhabitants(spaces) == set()
    assert machine() == before
    assert name not in lab_names()


def test_a_killed_head_takes_all_with_it_and_up_builds_on_its_ruins(lab: Lab, name: str) -> None:
    before = machine()
    with Lab(LabSpec(name=name, nodes=1)) as first:
        spaces = spaces_of(name)
        state = lab_state.find(name)
        assert state is not None
        os.kill(state.holder_pid, signal.SIGKILL)
        while state.alive():
            time.sleep(0.01)
        assert inhabitants(spaces) == set()
        assert machine() == before
        assert first.condition == "dead"
        with pytest.raises(UsageError, match="is not up"):
            first.run(["true"])
        with Lab(LabSpec(name=name, nodes=1)) as second:
            assert second.run(["sinfo", "-h", "-p", "gpu", "-o", "%D %T"]).stdout.strip() == "1 idle"


def test_a_living_lab_is_never_built_over(lab: Lab) -> None:
    with pytest.raises(UsageError, match="is up already"):
        Lab(LabSpec(name=lab.spec.name)).up()
    assert lab.condition == "up"
    assert Lab.attach(lab.spec.name).run(["hostname"]).stdout == "login\n"


def test_somebody_elses_folder_is_left_alone(lab: Lab, name: str, tmp_path: Path) -> None:
    (tmp_path / "thesis").touch()
    ours = Lab(LabSpec(name=name, folder=tmp_path))
    with pytest.raises(UsageError, match="is not empty"):
        ours.up()
    ours.down()
    assert (tmp_path / "thesis").exists()


def test_a_daemon_that_cannot_start_shows_its_log_and_the_rest_is_ended(lab: Lab, name: str) -> None:
    before = machine()
    broken = Lab(LabSpec(name=name, nodes=1, slurm_conf={"SelectType": "select/nonsense"}))
    with pytest.raises(Failed, match="slurmctld on head") as failure:
        broken.up()
    assert "select/nonsense" in failure.value.message
    assert f"{broken.folder}/log/slurmctld.log" in str(failure.value)
    assert broken.condition == "dead"
    assert machine() == before
    broken.down()
    assert name not in lab_names()
