"""What somebody saves of a real Slurm's accounting, asked what if."""

import json
import os
import time
from collections.abc import Iterator

import msgspec
import pytest
from click.testing import CliRunner
from own_lab import need_lab

from ones_slurm.cli.main import ones
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.packing import decode_plan
from ones_slurm.lab import Lab, LabSpec
from ones_slurm.lab.site_file import site_file

pytestmark = pytest.mark.slurm
COLUMNS = (
    "JobID,User,Account,Partition,JobName,State,Submit,Eligible,Start,End,NodeList,NNodes,NCPUS,AllocTRES,Timelimit,"
    "Comment,SubmitLine,JobIDRaw,ExitCode"
)
OVER = {"COMPLETED", "CANCELLED", "FAILED"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    need_lab()
    spec = LabSpec(name=f"whatif-{os.getpid()}", nodes=3, gpus_per_node=2)
    often = site_file(spec).replace("interval_s = 3.0", "interval_s = 1.0") + '\n[policy]\nname = "psrpt"\n'
    with Lab(msgspec.structs.replace(spec, etc_slurm={"ones.toml": often})) as running:
        yield running


@pytest.fixture
def journal(lab, tmp_path):
    """The journal of an `onesd` that watches while a story goes on."""
    with (tmp_path / "onesd.log").open("w") as log:
        daemon = lab.popen(["onesd"], user="operator", host="head", stdout=log, stderr=log)
        yield lab.folder / "home/operator/onesd/journal.sqlite"
        daemon.terminate()
        assert daemon.wait(20) == 0


def submit(lab, *options, run_s=2):
    argv = ["sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", f"sleep {run_s}"]
    return lab.run(argv).stdout.strip()


def sacct(lab, *options):
    return lab.run(["sacct", "-D", *options, "-a", "-S", "now-1hours"], user="operator", host="head").stdout


def test_what_a_real_slurm_accounts_is_simulated_and_what_a_real_daemon_decided_is_replayed(lab, journal, tmp_path):
    """An elastic job, one on a part of a node, one on all nodes, an array and a job without GPUs."""
    part = submit(lab, "-N1", "--gres=gpu:1")
    wish = submit(lab, "-N3", "--gres=gpu:2", "--comment=ones:nodes=1-3")
    whole = submit(lab, "-N3", "--gres=gpu:2", run_s=1)
    array = submit(lab, "-N1", "--gres=gpu:2", "--array=1-2", run_s=1)
    without = submit(lab, "-N1", run_s=1)
    until_s = time.monotonic() + 180
    while time.monotonic() < until_s:
        rows = [line.split("|") for line in sacct(lab, "-P", "-X", "-n", "-o", "JobID,State").splitlines()]
        if len(rows) >= 6 and all(state.split()[0] in OVER for _, state in rows):
            break
        time.sleep(0.3)
    assert {wish, part, whole, f"{array}_1", f"{array}_2", without} == {job_id for job_id, _ in rows}
    (tmp_path / "month.txt").write_text(sacct(lab, "-P", "-X", "-o", COLUMNS))
    (tmp_path / "month.json").write_text(sacct(lab, "--json"))
    answers = {}
    for name in ("month.txt", "month.json"):
        result = CliRunner().invoke(
            ones, ["sim", "whatif", "--from", str(tmp_path / name), "-P", "slurm", "-P", "equal", "--json"]
        )
        assert result.exit_code == 0, result.output
        answers[name] = json.loads(result.stdout)
    notes = "\n".join(answers["month.txt"]["notes"])
    assert "5 jobs on 3 nodes with 6 GPUs" in notes
    assert f"Elastic: 1 jobs, because its comment holds a wish ({wish})." in notes
    assert "Kept at their size: 3 jobs, because it has no wish." in notes
    assert "Kept at their size: 1 jobs, because it held a part of a node." in notes
    assert "Left out: 1 jobs, because it had no GPU." in notes
    assert answers["month.txt"]["notes"] == answers["month.json"]["notes"]
    assert [run["mean_s"] for run in answers["month.txt"]["runs"]] == [
        run["mean_s"] for run in answers["month.json"]["runs"]
    ]
    seen = CliRunner().invoke(ones, ["sim", "replay", str(journal)])
    assert seen.exit_code == 0, seen.output
    count, _, rest = seen.stdout.partition(" ")
    assert int(count) >= 3
    assert rest == "plans, all of them the same\n"
    with Journal.read(journal) as opened:
        planned = {target.job_id for tick in opened.recorded_ticks() for target in decode_plan(tick.plan).targets}
    assert wish in planned
