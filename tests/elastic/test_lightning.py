"""A Lightning training that is moved: it learns the same as one that was left alone."""

import importlib.util
import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("lightning") is None:
    pytest.skip("needs the extra lightning", allow_module_level=True)

from ones_slurm.elastic import checkpoint  # noqa: E402
from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402

from .conftest import mpiexec  # noqa: E402
from .moving import run_to_its_end, run_until_it_leaves  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(600)]

# The last generation trains a second time, alone and in one piece, for the first importing takes longer than all else.
TRAINING = """
import json, os, pathlib, time, warnings
import lightning.pytorch as L
import torch
from ones_slurm.elastic.lightning import ElasticCallback

warnings.simplefilter("ignore")
torch.set_num_threads(1)
out, pause_s = pathlib.Path(os.environ["OUT"]), float(os.environ.get("PAUSE_S", "0"))

class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        self.seen = []
    def training_step(self, batch, index):
        x, y, which = batch
        self.seen.append([self.current_epoch, which.tolist()])
        time.sleep(pause_s)
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]

def train():
    chance = torch.Generator().manual_seed(3)
    x = torch.randn(101, 6, generator=chance).double()
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).tanh(), torch.arange(101))
    module, elastic = Module(), ElasticCallback(batch_size=13, seed=5)
    trainer = L.Trainer(max_epochs=4, callbacks=[elastic], logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, **elastic.trainer_options())
    try:
        trainer.fit(module, elastic.loader(data, shuffle=True), ckpt_path=elastic.checkpoint())
    finally:
        (out / f"seen-{os.getpid()}").write_text(json.dumps(module.seen))
    return {"model": module.state_dict(), "steps": trainer.global_step, "optimizer": trainer.optimizers[0].state_dict()}

if __name__ == "__main__":
    final = train()
    del os.environ["ONES_RUN_DIR"]
    out = out / "alone"
    out.mkdir()
    torch.save([final, train()], out.parent / "final.pt")
"""


def test_moved_in_mid_epoch_to_another_size_it_learns_the_same(
    rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path)}

    word = run_until_it_leaves(mpiexec(2, script), {**env, "PAUSE_S": "0.2"}, folder, step=10)
    assert 10 <= word.progress.step < 31
    assert word.progress.samples % 101, "it left between two epochs"
    assert (word.progress.total_samples, word.progress.base_batch, word.batch) == (404, 13, 13)
    assert [path.name for path in folder.checkpoints.iterdir()] == [checkpoint.name_of(word.progress.step)]
    folder.begin_generation()
    run_to_its_end([sys.executable, str(script)], env)

    moved, alone = torch.load(tmp_path / "final.pt", weights_only=True)
    assert moved["steps"] == alone["steps"] == 32
    assert max((moved["model"][name] - alone["model"][name]).abs().max().item() for name in moved["model"]) < 1e-6
    assert moved["optimizer"]["param_groups"][0]["lr"] == alone["optimizer"]["param_groups"][0]["lr"] == 0.0025
    last = folder.read_word()
    assert last is not None
    assert (last.progress.step, last.progress.samples) == (32, 404)
    epochs: dict[int, list[int]] = {}
    for file in tmp_path.glob("seen-*"):
        for epoch, which in json.loads(file.read_text()):
            epochs.setdefault(epoch, []).extend(which)
    assert {epoch: sorted(which) for epoch, which in epochs.items()} == {epoch: list(range(101)) for epoch in range(4)}
