"""A model that is spread over the ranks by `fully_shard` goes on in a world of another size."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402

from .conftest import mpiexec, run_ok  # noqa: E402
from .test_training import final, furthest_apart, leave_after, seen_samples  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.mpi]


@pytest.fixture
def sharded(training: pathlib.Path) -> pathlib.Path:
    """The usual training, two of its layers sharded; its last state is collected as the job does it."""
    text = training.read_text()
    text = text.replace(
        "optimizer = torch",
        "mesh = torch.distributed.init_device_mesh('cpu', (elastic.start().size,))\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "fully_shard(model, mesh=mesh)\n"
        "optimizer = torch",
        1,
    )
    text = text.replace(
        "if job.world.rank == 0:\n",
        "from ones_slurm.elastic.sharded import collected\n"
        "whole = collected(model, optimizer)\n"
        "if job.world.rank == 0:\n",
    )
    text = text.replace('"model": model.state_dict()', '"model": whole["model"]')
    text = text.replace('"optimizer": optimizer.state_dict()', '"optimizer": whole["optimizer"]')
    training.with_name("sharded.py").write_text(text)
    return training.with_name("sharded.py")


def test_its_shards_are_cut_anew_and_it_learns_the_same(
    training: pathlib.Path,
    sharded: pathlib.Path,
    rank_env: dict[str, str],
    folder: RunFolder,
    tmp_path: pathlib.Path,
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    run_ok([sys.executable, str(training)], {**rank_env, "OUT": str(alone)})
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "PAUSE_S": "0.1"}
    word = leave_after(mpiexec(2, sharded), env, folder, steps=4)
    assert 4 <= word.progress.step < 32
    folder.begin_generation()
    run_ok(mpiexec(3, sharded), {**env, "PAUSE_S": "0"})
    assert final(tmp_path)["world"] == 3
    assert (
        furthest_apart({**final(tmp_path), "optimizer": {"state": {}}}, {**final(alone), "optimizer": {"state": {}}})
        < 1e-6
    )
    assert seen_samples(tmp_path) == {epoch: list(range(101)) for epoch in range(4)}
