"""A training by Hugging Face's Trainer that is moved: it learns the same as one that was left alone."""

import importlib.util
import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None:
    pytest.skip("needs the extra hf", allow_module_level=True)

from ones_slurm.elastic.runfolder import RunFolder  # noqa: E402

from .conftest import mpiexec  # noqa: E402
from .moving import run_to_its_end, run_until_it_leaves  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(600)]

# The last generation trains a second time, alone and in one piece, for the first importing takes longer than all else.
TRAINING = """
import json, os, pathlib, time, warnings
import torch
from transformers import Trainer, TrainingArguments
from ones_slurm.elastic.huggingface import ElasticCallback

warnings.simplefilter("ignore")
torch.set_num_threads(1)
out, pause_s = pathlib.Path(os.environ["OUT"]), float(os.environ.get("PAUSE_S", "0"))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        self.seen = []
    def forward(self, x, y, which):
        self.seen += which.tolist()
        time.sleep(pause_s)
        return {"loss": torch.nn.functional.mse_loss(self.net(x), y)}

def train(**wish):
    chance = torch.Generator().manual_seed(3)
    x = torch.randn(96, 6, generator=chance).double()
    data = [{"x": row, "y": row.sum(0, keepdim=True).tanh(), "which": i} for i, row in enumerate(x)]
    model, elastic = Model(), ElasticCallback(batch_size=12, **wish)
    arguments = TrainingArguments(num_train_epochs=4, learning_rate=0.01, max_grad_norm=0, report_to="none",
        disable_tqdm=True, remove_unused_columns=False, logging_steps=4, seed=5, **elastic.arguments(len(data)))
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[elastic])
    try:
        trainer.train(resume_from_checkpoint=elastic.checkpoint())
    finally:
        (out / f"seen-{os.getpid()}").write_text(json.dumps(model.seen))
    return {"model": model.state_dict(), "step": trainer.state.global_step}

if __name__ == "__main__":
    final = train(max_local_batch=4)
    if os.environ.get("AGAIN"):
        del os.environ["ONES_RUN_DIR"], os.environ["ONES_BATCH"]
        out = out / "alone"
        out.mkdir()
        torch.save([final, train()], out.parent / "final.pt")
"""


def test_moved_in_mid_epoch_to_another_size_it_learns_the_same(
    rank_env: dict[str, str], folder: RunFolder, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    env = {**rank_env, "ONES_RUN_DIR": str(folder.path), "ONES_BATCH": "12"}

    word = run_until_it_leaves(mpiexec(2, script), {**env, "PAUSE_S": "0.1"}, folder, step=10)
    assert 10 <= word.progress.step < 32
    assert word.progress.samples == 12 * word.progress.step
    assert (word.progress.total_samples, word.progress.base_batch, word.batch) == (384, 12, 12)
    assert word.progress.metrics["max_local_batch"] == 4
    folder.begin_generation()
    run_to_its_end([sys.executable, str(script)], {**env, "AGAIN": "1"})

    moved, alone = torch.load(tmp_path / "final.pt", weights_only=True)
    assert moved["step"] == alone["step"] == 32
    assert max((moved["model"][name] - alone["model"][name]).abs().max().item() for name in moved["model"]) < 1e-6
    seen = [which for file in tmp_path.glob("seen-*") for which in json.loads(file.read_text())]
    assert sorted(seen) == sorted(4 * list(range(96)))
    last = folder.read_word()
    assert last is not None
    assert (last.progress.step, last.progress.samples) == (32, 384)
    assert last.progress.loss is not None
