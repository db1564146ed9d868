"""Parts of a batch that do not fit, or are unequal: the gradient is the mean over the batch all the same."""

import json
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ones_slurm.elastic.balance import Balance  # noqa: E402
from ones_slurm.elastic.job import Job  # noqa: E402
from ones_slurm.elastic.world import World  # noqa: E402

from .conftest import CHECKOUT  # noqa: E402
from .moving import run_to_its_end  # noqa: E402

pytestmark = pytest.mark.torch

EPOCHS, SAMPLES, BATCH = 12, 203, 16

# Run by the test in this process and by two ranks in theirs. Rank 1 is the slow one: 4 ms a sample.
TRAINING = """
import json, os, pathlib, sys, time
import torch
from torch import nn
from ones_slurm import elastic

torch.set_num_threads(1)
EPOCHS, SAMPLES, BATCH = 12, 203, 16

def problem():
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 6).double()
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).tanh(), torch.arange(SAMPLES))
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    return data, model, torch.optim.Adam(model.parameters(), lr=0.01)

def train(job, data, model, **options):
    loader = job.loader(data, batch_size=BATCH, shuffle=True, **options)
    net = job.wrap(model)
    epochs = []
    for _ in job.epochs(EPOCHS):
        seen = []
        for x, y, index in loader:
            time.sleep(0.004 * len(x) if job.world.rank == 1 else 0.0)
            seen += index.tolist()[: loader.drawn.own]
            job.step(nn.functional.mse_loss(net(x), y))
        epochs.append(seen)
    return loader, epochs

if __name__ == "__main__":
    data, model, optimizer = problem()
    job = elastic.init(model, optimizer, seed=5)
    loader, epochs = train(job, data, model, max_local_batch=3, by_speed=True)
    told = {"epochs": epochs, "weights": loader.weights, "steps": job.steps, "measured": job.measured}
    pathlib.Path(os.environ["OUT"], f"told-{job.world.rank}.json").write_text(json.dumps(told))
    if job.world.rank == 0:
        torch.save(model.state_dict(), pathlib.Path(os.environ["OUT"], "final.pt"))
"""


@pytest.fixture
def script(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "shares.py"
    path.write_text(TRAINING)
    return path


def trained_alone(**options: int) -> tuple[dict[str, torch.Tensor], int]:
    words: dict[str, object] = {"__name__": "shares"}
    exec(TRAINING, words)
    data, model, optimizer = words["problem"]()  # type: ignore[operator]
    job = Job(model, optimizer, None, world=World(), seed=5)
    words["train"](job, data, model, **options)  # type: ignore[operator]
    return model.state_dict(), job.steps


def furthest_apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


def test_a_batch_in_several_shares_teaches_what_it_does_in_one() -> None:
    whole, steps = trained_alone()
    several, as_many = trained_alone(max_local_batch=3)
    assert steps == as_many == EPOCHS * -(-SAMPLES // BATCH)
    assert furthest_apart(whole, several) < 1e-9


def test_the_last_share_alone_ends_a_step() -> None:
    model = nn.Linear(1, 1)
    job = Job(model, torch.optim.SGD(model.parameters(), lr=0.1), None, world=World(), seed=0)
    steps = []
    data = torch.utils.data.TensorDataset(torch.ones(10, 1))
    for _ in job.epochs(1):
        for (x,) in job.loader(data, batch_size=4, max_local_batch=2):
            job.step(model(x).mean())
            steps.append((job.steps, job.samples))
    assert steps == [(0, 0), (1, 4), (1, 4), (2, 8), (3, 10)]


def test_two_unequal_ranks_train_as_one_and_the_slower_one_gets_less(
    script: pathlib.Path, rank_env: dict[str, str], tmp_path: pathlib.Path
) -> None:
    wrapper = [sys.executable, str(CHECKOUT / "wrappers" / "ones-run"), "--ranks-per-node=2"]
    run_to_its_end([*wrapper, f"--dir={tmp_path / 'run'}", "--", sys.executable, script], rank_env)
    first, second = (json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in (0, 1))

    assert first["weights"] == second["weights"]
    assert first["weights"][1] < first["weights"][0]
    counts = [sum(map(len, told["epochs"])) for told in (first, second)]
    assert counts[1] < counts[0]
    for mine, theirs in zip(first["epochs"], second["epochs"], strict=True):
        assert sorted(mine + theirs) == list(range(SAMPLES))

    alone, steps = trained_alone()
    assert first["steps"] == second["steps"] == steps
    assert furthest_apart(torch.load(tmp_path / "final.pt", weights_only=True), alone) < 1e-6
    assert first["measured"]["max_local_batch"] == 3


class Shelf:
    """A store of one process."""

    def __init__(self) -> None:
        self._words: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self._words[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._words[key]

    def add(self, key: str, amount: int) -> int:
        raise NotImplementedError

    def delete_key(self, key: str) -> bool:
        raise NotImplementedError


def test_shares_are_proposed_once_all_have_measured_and_only_if_that_is_worth_it() -> None:
    shelf = Shelf()
    ranks = [Balance(shelf, rank, 2) for rank in range(2)]
    for rank, speed in zip(ranks, (300.0, 100.0), strict=True):
        for count in (1, 2):
            rank.tell([speed] * count)
    assert ranks[0].propose(64, (1, 1)) is None
    for rank, speeds in zip(ranks, ([300.0, 300.0, 9.0], [100.0, 100.0, 100.0]), strict=True):
        rank.tell(speeds)
    assert ranks[0].propose(64, (1, 1)) == (1000, 333), "one hiccup of rank 0 must not count"
    assert ranks[0].propose(64, (100, 34)) is None, "that would gain nothing"

    for rank in ranks:
        rank.changed()
    ranks[0].tell([300.0] * 3)
    assert ranks[0].propose(64, (1, 1)) is None, "rank 1 has told nothing since the shares changed"
