"""How a generation is started, and what is believed of an allocation."""

import os
import pathlib
import subprocess
import sys

import pytest

from ones_slurm.elastic.allocation import SlurmAllocation, expand, identity, ranks_per_node
from ones_slurm.elastic.launch import Generation, Script, srun_line, step_environment
from ones_slurm.elastic.rank import listen, order_ranks, own_address
from ones_slurm.elastic.runfolder import RunFolder, Wanted
from ones_slurm.model.errors import Failed, NotAllowed, UsageError
from ones_slurm.model.settings import Launcher, Partition, Site
from ones_slurm.model.wire import Order

from .conftest import CHECKOUT, mpiexec

TWO_NODES = Generation(number=3, nodes=("c1", "c4"), ranks_per_node=2, batch=100, lr_scale=2.0)


def test_srun_gets_every_count_explicitly() -> None:
    line = srun_line(TWO_NODES, Launcher(srun_options=("--cpu-bind=none",)), pathlib.Path("/x/ones-rank"), ["train"])
    assert line[:5] == ["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--nodelist=c1,c4"]
    assert {"--no-kill", "--kill-on-bad-exit=0", "--mpi=pmix", "--cpu-bind=none"} < set(line)
    assert line[-3:] == [sys.executable, "/x/ones-rank", "train"]


def test_nothing_stale_reaches_srun(tmp_path: pathlib.Path) -> None:
    stale = {"SLURM_NTASKS": "9", "SLURM_NNODES": "9", "SLURM_TASKS_PER_NODE": "9", "SLURM_GPUS": "9", "RANK": "9"}
    kept = {"SLURM_JOB_ID": "12", "SLURM_GPUS_PER_NODE": "2", "HOME": "/home"}
    env = step_environment(
        stale | kept,
        TWO_NODES,
        Script(command=("train",)),
        RunFolder(tmp_path),
        Launcher(),
        batch_host="c1",
        checkpoint_every_s=60.0,
    )
    assert not stale.keys() & env.keys()
    assert kept.items() <= env.items()
    assert (env["ONES_GENERATION"], env["ONES_BATCH"], env["ONES_LR_SCALE"]) == ("3", "100", "2.0")


def test_placeholders_are_filled_and_nothing_else_is_touched(tmp_path: pathlib.Path) -> None:
    script = Script(command=("t", "-b={local_batch}", "{batch}", "{lr}", "{world}", "{checkpoint}", "{other}"), lr=0.1)
    folder = RunFolder(tmp_path)
    filled = script.for_generation(TWO_NODES, folder)
    assert filled == ["t", "-b=25", "100", "0.2", "4", str(folder.foreign_checkpoint), "{other}"]
    assert script.foreign
    assert not Script(command=("python", "{}")).foreign


def test_a_rate_that_nobody_gave_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"holds \{lr\}, and nobody said which"):
        Script(command=("t", "{lr}")).check()


@pytest.mark.parametrize(
    ("env", "job_id", "restarts"),
    [
        ({"SLURM_JOB_ID": "12"}, "12", 0),
        ({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"}, "12", 2),
        ({"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}, "12_3", 0),
    ],
)
def test_the_job_is_named_as_scontrol_takes_it(env: dict[str, str], job_id: str, restarts: int) -> None:
    job = identity(env)
    assert job is not None
    assert (job.job_id, job.restarts) == (job_id, restarts)


def test_outside_of_slurm_there_is_no_job_and_het_jobs_are_refused() -> None:
    assert identity({}) is None
    with pytest.raises(UsageError, match="heterogeneous"):
        identity({"SLURM_JOB_ID": "12", "SLURM_HET_SIZE": "2"})


@pytest.mark.parametrize(
    ("env", "ranks"),
    [
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0"}, 4),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_PARTITION": "gpu"}, 3),
        ({"SLURM_JOB_PARTITION": "cpu"}, 1),
    ],
)
def test_there_is_a_rank_for_each_gpu(env: dict[str, str], ranks: int) -> None:
    assert ranks_per_node(env, Site(partitions={"gpu": Partition(gpus_per_node=3)})) == ranks


def test_without_squeue_the_environment_is_believed_at_the_start_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    allocation = SlurmAllocation("12", {"SLURM_JOB_NODELIST": "c[1-2,4]"})
    assert allocation.nodes() == ("c1", "c2", "c4")
    assert allocation.nodes() is None
    assert "scontrol" in allocation.requeue()


def test_host_lists_are_expanded_and_nonsense_is_named() -> None:
    assert expand("a[09-10],b1") == ("a09", "a10", "b1")
    with pytest.raises(UsageError, match="is not a host list"):
        expand("a[1-")


def test_rank_0_lives_on_the_batch_host() -> None:
    places = order_ranks(["c1", "c2", "c1", "c2"], "c2")
    assert [(place.rank, place.local_rank, place.local_size) for place in places] == [
        (2, 0, 2),
        (0, 0, 2),
        (3, 1, 2),
        (1, 1, 2),
    ]


def test_rank_0_listens_before_anybody_is_told() -> None:
    listening, address, port = listen("lo")
    with listening:
        assert (address, port) == ("127.0.0.1", listening.getsockname()[1])
    with pytest.raises(Failed, match="interface nosuch0 has no IPv4 address"):
        own_address("nosuch0")


def test_a_run_folder_that_is_a_link_or_in_use_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAllowed, match="is a link"):
        RunFolder(tmp_path / "link").prepare()
    holder = RunFolder(tmp_path / "mine")
    holder.prepare()
    with pytest.raises(UsageError, match="another ones-run holds"):
        RunFolder(tmp_path / "mine").prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_a_run_folder_of_somebody_else_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 61002, -1)
    with pytest.raises(NotAllowed, match="belongs to uid 61002"):
        RunFolder(tmp_path / "theirs").prepare()


def test_half_a_line_and_half_an_order_are_nothing(folder: RunFolder) -> None:
    folder.order_path.write_text('{"generation": 1, "ki')
    (folder.path / "generations.jsonl").write_text('{"generation": 1, "no')
    assert folder.read_order() is None
    assert folder.generations() == []
    folder.write_order(Order(generation=2, kind="shrink", go=False, batch=0))
    assert folder.read_order() == Wanted(generation=2, kind="shrink", go=False, batch=0)


WORLD = """
import os
place = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
line = f"{place} {'ONES_STORE_FD' in os.environ} {os.environ['MASTER_ADDR']}\\n"
os.write(1, line.encode())  # in one piece, for both ranks write at once
"""


@pytest.mark.mpi
@pytest.mark.parametrize("foreign", ["", "1"])
def test_under_mpiexec_each_rank_learns_its_place_and_rank_0_of_the_api_gets_the_socket(
    foreign: str, rank_env: dict[str, str]
) -> None:
    pytest.importorskip("mpi4py")
    env = {**rank_env, "ONES_FOREIGN": foreign, "ONES_INTERFACE": "lo"}
    done = subprocess.run(mpiexec(2, "-c", WORLD), env=env, capture_output=True, text=True, timeout=240, check=False)
    assert sorted(done.stdout.splitlines()) == [
        f"['0', '2', '0', '2'] {not foreign} 127.0.0.1",
        "['1', '2', '1', '2'] False 127.0.0.1",
    ], done.stderr


def ones_run(*words: str, cwd: pathlib.Path, **env: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "ONES_"))}
    command = [sys.executable, str(CHECKOUT / "wrappers" / "ones-run"), *words]
    return subprocess.run(
        command, cwd=cwd, env={**clean, **env}, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_dry_run_prints_the_line_and_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    done = ones_run(
        *("--dry-run", "--batch=64", "--", "train", "{local_batch}"),
        cwd=tmp_path,
        SLURM_JOB_ID="12",
        SLURM_JOB_NODELIST="c[1-2]",
        SLURM_GPUS_ON_NODE="2",
        SLURM_SUBMIT_DIR=str(tmp_path),
        PATH="/nowhere",
    )
    assert done.stdout.startswith("srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=c1,c2 "), done.stderr
    assert done.stdout.endswith("ones-rank train 16\n")
    assert list(tmp_path.iterdir()) == []


def test_on_a_laptop_the_command_simply_runs(tmp_path: pathlib.Path) -> None:
    done = ones_run("--", sys.executable, "-c", "import os; print(os.environ['WORLD_SIZE'])", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert len(list(tmp_path.glob("ones-runs/local-*/generations.jsonl"))) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--", "no-such-command"), 2, "cannot run no-such-command"),
        (("--", "train", "{batch}"), 2, "nobody says which global batch"),
        (("--checkpoint-every=0", "--", "train"), 2, "checkpoint-every"),
        (("--site=/no/such.toml", "--", "train"), 2, "cannot read the site file /no/such.toml"),
        (("--",), 2, "there is no COMMAND to train with"),
    ],
)
def test_wrong_use_is_explained(words: tuple[str, ...], code: int, said: str, tmp_path: pathlib.Path) -> None:
    done = ones_run(*words, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_wrapper_needs_neither_torch_nor_mpi() -> None:
    look = "import sys, ones_slurm.elastic.wrapper_cli, ones_slurm.elastic.rank; "
    look += "print({'torch', 'mpi4py'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", look], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
