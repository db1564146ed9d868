"""submit and doctor on a real Slurm, as ordinary users type them."""

import json
import sys
import time

import pytest
from own_lab import own_lab

pytestmark = pytest.mark.slurm

ONES = [sys.executable, "-m", "ones_slurm.cli.main"]
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH --comment=charge:7\nsleep 600\n"


@pytest.fixture(scope="module")
def lab():
    often = {"JobAcctGatherFrequency": "task=1"}
    with own_lab("cli", nodes=2, gpus_per_node=2, slurm_conf=often) as running:
        running.run(["bash", "-c", "cat > train.sh"], input=SCRIPT)
        yield running


def ones(lab, *words, env=None):
    return lab.run([*ONES, *words], check=False, env=env)


def queue(lab):
    """Job id, node count and comment of each job."""
    lines = lab.run(["squeue", "-h", "-o", "%i|%D|%k"]).stdout.splitlines()
    return [tuple(line.split("|")) for line in lines]


def test_a_wish_becomes_a_word_of_the_comment_beside_the_users_own(lab):
    done = ones(lab, "submit", "--nodes", "1-2", "-J", "mine", "--batch=64-256", "train.sh", "--nodes", "7")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    try:
        ((listed, nodes, comment),) = queue(lab)
        assert (listed, nodes) == (job, "1")
        assert comment.split()[:2] == ["charge:7", "ones:nodes=1-2,batch=64-256"]
    finally:
        lab.run(["scancel", job])


def test_a_dry_run_prints_the_line_and_submits_nothing(lab):
    done = ones(lab, "submit", "--dry-run", "--nodes=1-2", "-p", "gpu", "train.sh", "an argument")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sbatch --parsable '--comment=charge:7 ones:nodes=1-2 ones-submit:")
    assert done.stdout.endswith(" --nodes=1 -p gpu train.sh 'an argument'\n")
    assert queue(lab) == []


def test_a_pipeline_is_submitted_at_its_fewest_replicas_and_with_its_devices(lab):
    pytest.importorskip("ortools")
    assert ones(lab, "pipeline", "search", "V4", "-n", "4", "--budget", "1", "-o", "p.json").returncode == 0
    done = ones(lab, "submit", "--dry-run", "--pipeline", "p.json", "--replicas", "1", "--batch=64-128", "train.sh")
    assert done.returncode == 0, done.stderr
    assert " ones:pipeline=p.json,devices=4,replicas=1-1,batch=64-128 " in done.stdout
    assert done.stdout.endswith(" --nodes=2 train.sh\n"), "two nodes with two GPUs each are one replica"
    by_hand = ones(lab, "submit", "--dry-run", "--comment=ones:pipeline=p.json,replicas=1", "train.sh")
    assert by_hand.stdout.endswith(" --nodes=2 train.sh\n"), by_hand.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--nodes", "2-1", "train.sh"], 2, "write nodes=1-2"),
        (["--nodes", "many", "train.sh"], 2, "not a number or a range"),
        (["--nodes", "1-2", "-p", "gpus", "train.sh"], 5, "partitions here: gpu, other"),
        (["--nodes", "1-3", "train.sh"], 2, "a job in gpu can have 2"),
        (["--gpus", "3", "train.sh"], 2, "no whole number of nodes with 2 GPUs each"),
        (["--nodes", "2", "-N1", "train.sh"], 2, "outside of the wish"),
        (["--nodes", "1-2", "--comment", "ones:nodes=1-2", "train.sh"], 2, "given twice"),
        (["--comment", "ones:node=1-2", "train.sh"], 2, "did you mean nodes=?"),
        (["--pipeline", "none.json", "--replicas", "1-2", "train.sh"], 5, "there is no file none.json"),
        (["--pipeline", "train.sh", "--replicas", "1-2", "train.sh"], 2, "train.sh is not JSON"),
        (["--pipeline", "a,b.json", "--replicas", "1-2", "train.sh"], 2, "cannot hold the file name"),
        (["--replicas", "1-2", "train.sh"], 2, "replicas without a pipeline"),
        (["train.sh"], 2, "has no wish"),
        (["--nodes", "1-2"], 2, "no script"),
        (["--nodes", "1-2", "missing.sh"], 1, "missing.sh"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_submitted(lab, words, code, said):
    done = ones(lab, "submit", *words)
    assert (done.returncode, said in done.stderr, done.stdout) == (code, True, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert queue(lab) == []


def test_the_job_gets_the_users_environment_and_not_ours(lab):
    env = {"TZ": "Europe/Berlin", "LC_ALL": "C.UTF-8"}
    done = ones(lab, "submit", "--nodes=1-2", "--output=env.txt", "--wrap", "env > env.part; mv env.part env", env=env)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 180
    while (shown := lab.run(["cat", "env"], check=False)).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {"TZ=Europe/Berlin", "LC_ALL=C.UTF-8"} <= set(shown.stdout.splitlines())
    assert "SLURM_TIME_FORMAT" not in shown.stdout


def levels(done):
    return {check["name"]: check["level"] for check in json.loads(done.stdout)["checks"]}


def test_the_doctor_finds_a_healthy_cluster_healthy_and_onesd_missing(lab):
    done = ones(lab, "doctor", "--json")
    assert done.returncode == 0, done.stdout
    found = levels(done)
    assert found.pop("onesd") == "WARN"
    assert found.keys() >= {"slurmctld", "slurmdbd", "munge", "shrink", "requeue", "comments kept", "gpus counted"}
    assert {name: level for name, level in found.items() if level != "OK"} == {}


def test_the_doctor_names_a_wrong_key_and_still_looks_at_the_rest(lab):
    lab.run(["bash", "-c", "echo '[engine]\ninterval = 3' > wrong.toml"])
    done = ones(lab, "--site", "wrong.toml", "doctor")
    assert done.returncode == 1
    assert "FAIL  site file" in done.stdout
    assert "did you mean 'interval_s'?" in done.stdout
    assert "OK    slurmctld" in done.stdout


def test_info_shows_nodes_gpus_and_jobs_of_each_partition_also_without_onesd(lab):
    job = lab.run(
        ["sbatch", "--parsable", "-N1", "--gres=gpu:2", "-o", "/dev/null", "--wrap", "sleep 600"]
    ).stdout.strip()
    try:
        deadline = time.monotonic() + 20
        while lab.run(["squeue", "-h", "-j", job, "-o", "%t"]).stdout.strip() != "R":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        head, _, titles, *rows = ones(lab, "info").stdout.splitlines()
        assert head.startswith("onesd  onesd does not answer")
        assert titles.split() == ["PARTITION", "ELASTIC", "NODES", "GPUS", "RUNNING", "PENDING", "WISHING"]
        assert [row.split() for row in rows] == [
            ["gpu", "yes", "1/1/0/2", "2/2/0/4", "1", "0", "0"],
            ["other", "yes", "1/1/0/2", "2/2/0/4", "0", "0", "0"],
        ]
        told = json.loads(ones(lab, "info", "-p", "gpu", "--json").stdout)
        assert (told["version"], told["onesd"], told["partitions"][0]["gpus_idle"]) == (1, None, 2)
        assert ones(lab, "info", "-p", "nosuch").returncode == 5
    finally:
        lab.run(["scancel", job])


def test_without_slurmctld_it_is_exit_code_4_with_slurms_own_words(lab):
    lab.stop_service("slurmctld")
    try:
        sick = ones(lab, "doctor")
        assert sick.returncode == 4
        assert "FAIL  slurmctld" in sick.stdout
        assert "Unable to contact slurm controller" in sick.stdout
        late = ones(lab, "submit", "--nodes=1-2", "train.sh")
        assert (late.returncode, late.stdout) == (4, "")
        assert "Unable to contact slurm controller" in late.stderr
    finally:
        lab.start_service("slurmctld")


BUSY = """#!/bin/bash
srun -n2 python3 -c '
import time
kept, end = bytearray(150 << 20), time.time() + 6
while time.time() < end: pass
'
"""


def test_eff_tells_the_cpu_time_and_the_memory_that_slurm_measured(lab):
    lab.run(["bash", "-c", "cat > busy.sh"], input=BUSY)
    asked = ["--parsable", "-N2", "-n2", "--mem=600M", "--gres=gpu:1", "busy.sh"]
    job = lab.run(["sbatch", *asked]).stdout.strip()
    deadline_s = time.monotonic() + 120
    while "COMPLETED" not in lab.run(["sacct", "-X", "-n", "-j", job, "-o", "State"]).stdout:
        assert time.monotonic() < deadline_s, lab.run(["sacct", "-j", job]).stdout
        time.sleep(1)
    told = ones(lab, "eff", job, "--json")
    assert told.returncode == 0, told.stderr
    use = json.loads(told.stdout)["rows"][0]["use"]
    assert use["complete"]
    assert use["asked_mib"] == 1200, "on two nodes"
    assert 2 < use["cpu_s"] <= use["core_s"] + 2, "seconds of two tasks"
    if use["memory_mib"] is not None:  # a busy machine may sample late
        assert use["step"] == "0"
        assert 300 <= use["memory_mib"] < 600, "two tasks of 150 MiB and what Python takes"
    page = ones(lab, "eff", job).stdout
    assert "of core time" in page
