"""The training API: what is learned does not depend on how often, when and to which size the job was moved."""

import json
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic import checkpoint  # noqa: E402
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder, Word  # noqa: E402
from ones_slurm.model.wire import Order  # noqa: E402

from .conftest import mpiexec, run_ok  # noqa: E402

pytestmark = pytest.mark.torch


def final(out: pathlib.Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(out / "final.pt", weights_only=True)
    return state


def furthest_apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = [(one["model"][name], other["model"][name]) for name in one["model"]]
    for mine, theirs in zip(one["optimizer"]["state"].values(), other["optimizer"]["state"].values(), strict=True):
        pairs += [(mine[name], theirs[name]) for name in mine]
    return max((a - b).abs().max().item() for a, b in pairs)


def seen_samples(out: pathlib.Path) -> dict[int, list[int]]:
    """By epoch. A step that was begun in a world that broke, and done again in the next, counts as the latter."""
    lines = [json.loads(line) for file in out.glob("seen-*") for line in file.read_text().splitlines()]
    counts = {step: max(formation for _, _, at, formation in lines if at == step) for _, _, step, _ in lines}
    epochs: dict[int, list[int]] = {}
    for epoch, indices, step, formation in lines:
        if formation == counts[step]:
            epochs.setdefault(epoch, []).extend(indices)
    return {epoch: sorted(indices) for epoch, indices in epochs.items()}


def leave_after(command: list[str], env: dict[str, str], folder: RunFolder, steps: int, generation: int = 0) -> Word:
    """Runs a generation, orders it to leave once it has made `steps` steps, and returns rank 0's last word."""
    folder.begin_generation()
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 240
    while (word := folder.read_word()) is None or word.generation != generation or word.progress.step < steps:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    folder.write_order(Order(generation=generation + 1, kind="shrink", go=False, batch=0))
    said, _ = process.communicate(timeout=240)
    assert process.returncode == LEFT_CODE, said
    word = folder.read_word()
    assert word is not None
    assert word.left
    return word


@pytest.fixture
def uninterrupted(training: pathlib.Path, rank_env: dict[str, str], tmp_path: pathlib.Path) -> dict[str, Any]:
    """The same training in one piece, in a world of one, as on a laptop."""
    out = tmp_path / "uninterrupted"
    out.mkdir()
    run_ok([sys.executable, str(training)], {**rank_env, "OUT": str(out)})
    return final(out)


def test_on_a_laptop_it_simply_runs(uninterrupted: dict[str, Any], tmp_path: pathlib.Path) -> None:
    assert (uninterrupted["steps"], uninterrupted["samples"]) == (32, 404)
    assert seen_samples(tmp_path / "uninterrupted") == {epoch: list(range(101)) for epoch in range(4)}
    assert uninterrupted["lr"] == [0.01 * 0.25]


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_world_of_any_size_learns_the_same_though_its_shares_are_unequal(
    ranks: int, uninterrupted: dict[str, Any], training: pathlib.Path, rank_env: dict[str, str], tmp_path: pathlib.Path
) -> None:
    run_ok(mpiexec(ranks, training), rank_env)
    assert final(tmp_path)["world"] == ranks
    assert furthest_apart(final(tmp_path), uninterrupted) < 1e-6
    assert seen_samples(tmp_path) == {epoch: list(range(101)) for epoch in range(4)}


def test_torchrun_starts_it_as_well(
    uninterrupted: dict[str, Any], training: pathlib.Path, rank_env: dict[str, str], tmp_path: pathlib.Path
) -> None:
    try:
        torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except RuntimeError:
        pytest.skip("this torch is built without libuv (Debian's is), and its torchrun insists on it")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    run_ok([*launcher, "--standalone", str(training)], rank_env)
    assert final(tmp_path)["world"] == 2
    assert furthest_apart(final(tmp_path), uninterrupted) < 1e-6


@pytest.mark.mpi
def test_resized_twice_in_mid_epoch_it_learns_the_same_and_sees_each_sample_once(
    uninterrupted: dict[str, Any],
    training: pathlib.Path,
    rank_env: dict[str, str],
    folder: RunFolder,
    tmp_path: pathlib.Path,
) -> None:
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.15", "WORKERS": "1"}
    first = leave_after(mpiexec(2, training), env, folder, steps=3)
    second = leave_after(mpiexec(3, training), env, folder, steps=first.progress.step + 4)
    assert 3 <= first.progress.step < second.progress.step < 32
    assert any(word.progress.samples % 101 for word in (first, second)), "neither left in mid-epoch"
    assert second.first_step == first.progress.step

    folder.begin_generation()
    run_ok([sys.executable, str(training)], {**env, "PAUSE_S": "0"})

    assert furthest_apart(final(tmp_path), uninterrupted) < 1e-6
    assert final(tmp_path)["lr"] == uninterrupted["lr"]
    assert seen_samples(tmp_path) == {epoch: list(range(101)) for epoch in range(4)}
    state = checkpoint.load(checkpoint.newest_first(folder.checkpoints)[0])
    assert [(size["ranks"], size["step"]) for size in state["sizes"]] == [
        (2, 0),
        (3, first.progress.step),
        (1, second.progress.step),
    ]


def test_batch_norm_and_dropout_go_on_to_the_bit_in_the_same_world(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    env = {**rank_env, "RANDOM": "1"}
    run_ok([sys.executable, str(training)], env)
    straight = final(tmp_path)
    moved = {**env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1"}
    word = leave_after([sys.executable, str(training)], moved, folder, steps=4)
    assert word.progress.step < 32
    folder.begin_generation()
    run_ok([sys.executable, str(training)], {**moved, "PAUSE_S": "0"})
    assert furthest_apart(final(tmp_path), straight) == 0.0
    assert straight["model"]["2.num_batches_tracked"] == 32


@pytest.mark.mpi
def test_each_rank_of_the_same_world_goes_on_with_its_own_random_numbers(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    env = {**rank_env, "RANDOM": "1"}
    run_ok(mpiexec(2, training), env)
    straight = final(tmp_path)
    moved = {**env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1"}
    leave_after(mpiexec(2, training), moved, folder, steps=4)
    folder.begin_generation()
    run_ok(mpiexec(2, training), {**moved, "PAUSE_S": "0"})
    assert furthest_apart(final(tmp_path), straight) == 0.0


@pytest.mark.mpi
def test_on_a_full_disk_the_job_declines_and_trains_on(
    uninterrupted: dict[str, Any],
    training: pathlib.Path,
    rank_env: dict[str, str],
    folder: RunFolder,
    tmp_path: pathlib.Path,
) -> None:
    small = "import resource,sys,runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); "
    small += f"runpy.run_path({str(training)!r}, run_name='__main__')"
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1", "EPOCHS": "3"}
    folder.write_order(Order(generation=1, kind="shrink", go=False, batch=0))
    done = subprocess.run(mpiexec(2, "-c", small), env=env, capture_output=True, text=True, timeout=300, check=False)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4000
    word = folder.read_word()
    assert word is not None
    assert word.declined is not None, done.stdout + done.stderr
    assert word.declined.generation == 1
    assert "File too large" in word.declined.reason
    assert not word.left
    assert word.progress.step == 24
    assert list(folder.checkpoints.iterdir()) == []


def test_checkpoints_are_written_as_time_goes_by(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder
) -> None:
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1", "ONES_CHECKPOINT_EVERY_S": "0.5"}
    process = subprocess.Popen([sys.executable, str(training)], env=env)
    deadline = time.monotonic() + 240
    while not checkpoint.newest_first(folder.checkpoints) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()  # as a node that loses power would
    process.wait()
    found, notes = checkpoint.find_whole(folder.checkpoints)
    assert found is not None
    assert 0 < checkpoint.load(found)["steps"] < 32
    assert notes == []


def test_a_truncated_newest_checkpoint_is_reported_and_the_older_one_used(
    uninterrupted: dict[str, Any],
    training: pathlib.Path,
    rank_env: dict[str, str],
    folder: RunFolder,
    tmp_path: pathlib.Path,
) -> None:
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1"}
    leave_after([sys.executable, str(training)], env, folder, steps=2)
    word = leave_after([sys.executable, str(training)], env, folder, steps=8)
    newest, older = checkpoint.newest_first(folder.checkpoints)
    newest.write_bytes(newest.read_bytes()[:1000])

    folder.begin_generation()
    run_ok([sys.executable, str(training)], {**env, "PAUSE_S": "0"})

    last = folder.read_word()
    assert last is not None
    assert last.notes == (f"checkpoint {newest.name} is truncated; resumed from {older.name}",)
    assert last.first_step < word.progress.step
    assert furthest_apart(final(tmp_path), uninterrupted) < 1e-6


def test_another_batch_and_rate_are_taken_from_the_order(
    training: pathlib.Path, rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "ONES_BATCH": "50", "ONES_LR_SCALE": "3"}
    run_ok([sys.executable, str(training)], env)
    word = folder.read_word()
    assert word is not None
    assert (word.batch, word.progress.base_batch, word.progress.step) == (50, 13, 12)
    state = checkpoint.load(checkpoint.newest_first(folder.checkpoints)[0])
    assert state["ramp"][:2] == [3.0, 3.0]
    assert final(tmp_path)["lr"] == [0.01 * 0.25]
