"""The plugins inside a real slurmctld: what users see, and that nobody suffers when one of them is broken."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_lab import need_lab

from ones_slurm.lab import Lab, LabSpec

pytestmark = pytest.mark.slurm

FOLDER = Path(__file__).parents[2] / "site_configs" / "slurm"
SENDING = FOLDER.joinpath("ones_submit.lua").read_text().replace("partition = nil", 'partition = "other"')


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster with all three, as `make install` lays them out; elastic jobs go to the partition `other`."""
    need_lab()
    if shutil.which("cc") is None or not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("the SPANK plugin needs a C compiler and slurm/spank.h: apt-get install gcc libc6-dev libslurm-dev")
    built = tmp_path_factory.mktemp("spank")
    built.parent.parent.chmod(0o755)
    built.parent.chmod(0o755)
    built.chmod(0o755)
    subprocess.run(["make", "-s", "-C", FOLDER, f"OUT={built}"], check=True)
    files = {
        "job_submit.lua": FOLDER.joinpath("job_submit.lua").read_text(),
        "ones_submit.lua": SENDING,
        "cli_filter.lua": FOLDER.joinpath("cli_filter.lua").read_text(),
        "plugstack.conf": f"optional {built}/ones_spank.so\noptional {built}/absent.so\n",
    }
    plugins = {"JobSubmitPlugins": "lua", "CliFilterPlugins": "lua"}
    with Lab(
        LabSpec(name="plugins", nodes=1, gpus_per_node=2, slurm_conf=plugins, etc_slurm=files, shares=(built,))
    ) as up:
        yield up


def sbatch(lab: Lab, *options: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return lab.run(["sbatch", "--parsable", *options, "--wrap=true"], env=env, check=False)


def job(lab: Lab, job_id: str) -> str:
    return lab.run(["scontrol", "show", "job", job_id.strip()]).stdout


def test_a_slip_in_the_comment_is_told_by_sbatch(lab: Lab) -> None:
    refused = sbatch(lab, "--comment=ones:nodes=4-1")
    assert refused.returncode != 0
    assert "ones: nodes=4-1 runs backwards (for example --comment=ones:nodes=1-4,batch=64-4096)" in refused.stderr


def test_an_elastic_job_goes_to_the_co_schedulers_partition_and_others_do_not(lab: Lab) -> None:
    elastic, rigid = sbatch(lab, "--comment=ones:nodes=1"), sbatch(lab, "--comment=charge=x12")
    chosen = sbatch(lab, "--comment=ones:nodes=1", "--partition=gpu")
    assert "Partition=other" in job(lab, elastic.stdout)
    assert "Partition=gpu" in job(lab, rigid.stdout)
    assert "Partition=gpu" in job(lab, chosen.stdout)


def test_the_options_of_the_spank_plugin_write_the_comment(lab: Lab) -> None:
    asked = sbatch(lab, "--ones-gpus=1-8", "--ones-batch=64-4096", "--comment=charge=x12")
    assert "Comment=charge=x12 ones:gpus=1-8,batch=64-4096" in job(lab, asked.stdout)
    refused = sbatch(lab, "--ones-gpus=8-1")
    assert "gpus=8-1 runs backwards" in refused.stderr
    assert "--ones-gpus=min-max" in lab.run(["sbatch", "--help"]).stdout
    assert lab.run(["srun", "--ones-nodes=1-2", "hostname"]).stdout == "c1\n"


def test_the_environment_writes_the_comment(lab: Lab) -> None:
    asked = sbatch(lab, env={"ONES_NODES": "1-3"})
    assert "Comment=ones:nodes=1-3" in job(lab, asked.stdout)


def test_hostile_comments_are_text_and_nothing_else(lab: Lab) -> None:
    for text in ("ones:nodes=%s%n%d", "ones:$(reboot)=1", "ones:nodes=1-2\nones:nodes=3", "ones:" + "x" * 5000):
        refused = sbatch(lab, f"--comment={text}")
        assert refused.returncode != 0
        assert "ones: " in refused.stderr
    assert lab.run(["squeue", "--noheader"]).returncode == 0


def test_slurm_starts_and_takes_jobs_with_broken_scripts(lab: Lab) -> None:
    """Broken rules check nothing. A broken job_submit.lua is worse, and Slurm then goes on with the last good one."""
    etc = lab.folder / "slurm"
    kept = {name: etc.joinpath(name).read_text() for name in ("job_submit.lua", "ones_submit.lua")}
    try:
        etc.joinpath("ones_submit.lua").write_text("this is no Lua")
        lab.stop_service("slurmctld")
        lab.start_service("slurmctld")
        assert sbatch(lab).returncode == 0
        assert "nothing is checked" in lab.folder.joinpath("log", "slurmctld.log").read_text()
        etc.joinpath("job_submit.lua").write_text("this is no Lua")
        assert sbatch(lab).returncode == 0
    finally:
        for name, text in kept.items():
            etc.joinpath(name).write_text(text)
