"""A lab runs jobs as a cluster does."""

import subprocess
import time
from pathlib import Path

import pytest

from ones_slurm.lab import Lab, LabSpec
from ones_slurm.model.errors import Failed, UsageError

pytestmark = pytest.mark.slurm

SHOW_WORLD = """
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD.allgather(socket.gethostname())
if MPI.COMM_WORLD.rank == 0:
    print(",".join(world))
"""


def sacct(lab: Lab, job: str, fields: str) -> str:
    return lab.run(["sacct", "-nPX", "-j", job, "-o", fields]).stdout.strip()


def wait_for(lab: Lab, job: str, state: str) -> None:
    deadline = time.monotonic() + 180
    while (seen := lab.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip()) != state:
        assert time.monotonic() < deadline, f"job {job} is {seen}, not {state}"
        time.sleep(0.1)


def test_a_gpu_job_sees_its_gpus_and_is_accounted_for(lab: Lab) -> None:
    script = "#!/bin/bash\necho $(id -un) $(hostname) $CUDA_VISIBLE_DEVICES\n"
    job = lab.run(["sbatch", "--parsable", "--gres=gpu:2", "-o", "gpu.out"], input=script).stdout.strip()

    deadline = time.monotonic() + 180
    while sacct(lab, job, "state") != "COMPLETED" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (lab.folder / "home/user1/gpu.out").read_text() == "user1 c1 0,1\n"
    assert sacct(lab, job, "user,account,state") == "user1|physics|COMPLETED"
    assert "gres/gpu=2" in sacct(lab, job, "alloctres")


def test_mpi4py_starts_up_over_two_nodes(lab: Lab) -> None:
    pytest.importorskip("mpi4py")
    said = lab.run(["srun", "-N2", "--ntasks-per-node=2", "--mpi=pmix", "python", "-c", SHOW_WORLD]).stdout
    assert said.strip() == "c1,c1,c2,c2"


def test_every_host_has_a_tmp_of_its_own_and_home_is_shared(lab: Lab) -> None:
    mine = f"/tmp/mine-{lab.spec.name}"
    lab.run(["touch", mine, "/home/user1/ours"], host="c1")
    assert lab.run(["ls", mine], host="c2", check=False).returncode != 0
    assert lab.run(["ls", "/home/user1/ours"], host="c2").stdout.strip() == "/home/user1/ours"
    assert not Path(mine).exists()


def test_users_are_ordinary_and_the_operator_is_one(lab: Lab) -> None:
    assert lab.run(["id"], user="user2").stdout.strip() == "uid=61002(user2) gid=61002(user2) groups=61002(user2)"
    assert lab.run(["cat", "/etc/slurm/slurmdbd.conf"], check=False).returncode != 0
    levels = lab.run(["sacctmgr", "-nP", "show", "user", "format=user,adminlevel"]).stdout.split()
    assert sorted(levels) == ["operator|Operator", "root|Administrator", "user1|None", "user2|None"]


def test_job_users_can_use_this_python_and_this_package(lab: Lab) -> None:
    for host in ("login", "head", "c1"):
        lab.run(["python", "-c", "import ones_slurm.model, msgspec"], host=host)


def test_a_command_that_fails_says_why(lab: Lab) -> None:
    with pytest.raises(Failed, match=r"`sbatch --gres=gpu:99 --wrap true` \(user1 on login\) ended with 1"):
        lab.run(["sbatch", "--gres=gpu:99", "--wrap", "true"])
    with pytest.raises(UsageError, match="no host 'c9'"):
        lab.run(["true"], host="c9")
    with pytest.raises(UsageError, match="no user 'root2'"):
        lab.run(["true"], user="root2")


def test_a_login_shell_finds_the_same_python(lab: Lab) -> None:
    found = {lab.run(["bash", *login, "-c", "type -p python"]).stdout for login in ([], ["-l"])}
    assert len(found) == 1


def test_a_command_that_takes_too_long_is_killed_with_its_children(lab: Lab) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        lab.run(["bash", "-c", "sleep 1000; true"], timeout_s=0.2)
    assert lab.run(["pgrep", "-u", "user1", "sleep"], check=False).stdout == ""


def test_a_started_process_is_ended_by_its_handle(lab: Lab) -> None:
    process = lab.popen(["sleep", "1000"], user="operator", host="head", stdin=subprocess.DEVNULL)
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == -15
    assert lab.run(["pgrep", "-u", "operator"], host="head", check=False).stdout == ""


def test_a_job_outlives_a_restart_and_a_crash_of_slurmctld(lab: Lab) -> None:
    job = lab.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300"]).stdout.strip()
    wait_for(lab, job, "RUNNING")

    # The orderly stop writes the state; a crash alone would lose jobs of the last seconds, as on any site.
    lab.stop_service("slurmctld")
    lab.start_service("slurmctld")
    lab.kill_service("slurmctld")
    assert lab.run(["scontrol", "ping"], check=False).stdout.strip().endswith("DOWN")
    lab.start_service("slurmctld")

    wait_for(lab, job, "RUNNING")
    lab.run(["scancel", job])


def test_accounting_comes_back_after_a_restart(lab: Lab) -> None:
    for service in ("slurmdbd", "mariadbd"):
        lab.stop_service(service)
    assert lab.run(["sacct"], check=False).returncode != 0
    for service in ("mariadbd", "slurmdbd"):
        lab.start_service(service)
    assert lab.run(["sacct"]).returncode == 0


def test_a_node_loses_power_and_boots_again(lab: Lab) -> None:
    job = lab.run(["sbatch", "--parsable", "-w", "c3", "--no-requeue", "-o", "/dev/null", "--wrap", "sleep 300"]).stdout
    wait_for(lab, job.strip(), "RUNNING")

    lab.stop_node("c3")
    # Only the host's first process is left, and `ps` itself.
    assert lab.run(["ps", "-e", "-o", "pid="], host="c3", user="root").stdout.split()[:-1] == ["1"]
    lab.start_node("c3")

    lab.run(["srun", "-w", "c3", "--overlap", "hostname"])
    lab.run(["scancel", job.strip()])


def test_a_site_without_gres_hands_out_whole_nodes_beside_the_first_lab(lab: Lab, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "note").write_text("hello")
    spec = LabSpec(
        name=f"{lab.spec.name}-tacc", nodes=2, profile="whole-node", folder=tmp_path / "lab", shares=(shared,)
    )
    with Lab(spec) as site:
        assert lab.run(["sinfo", "-h", "-p", "gpu", "-o", "%D"]).stdout.strip() == "3"
        assert site.run(["sbatch", "--gres=gpu:1", "--wrap", "true"], check=False).returncode != 0
        assert site.run(["srun", "-N2", "cat", str(shared / "note")]).stdout == "hellohello"
        first, second = (
            site.run(["sbatch", "--parsable", "-o", "/dev/null", "-N1", "--wrap", "sleep 300"]).stdout.strip()
            for _ in range(2)
        )
        wait_for(site, first, "RUNNING")
        wait_for(site, second, "RUNNING")
        nodes = site.run(["squeue", "-h", "-o", "%N"]).stdout.split()
        assert sorted(nodes) == ["c1", "c2"]
    assert not (tmp_path / "lab").exists()
