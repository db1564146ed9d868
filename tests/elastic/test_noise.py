"""The gradient noise scale, on problems whose noise is known."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic.gauge import EVERY, Gauge  # noqa: E402
from ones_slurm.elastic.job import Job  # noqa: E402
from ones_slurm.elastic.noise import NoiseScale, Thinning  # noqa: E402
from ones_slurm.elastic.sampler import Share  # noqa: E402
from ones_slurm.elastic.world import World  # noqa: E402

pytestmark = pytest.mark.torch

# The gradient of the mean of w·x over a batch is the mean of its x. These have a mean of squared norm 5 x 0.2², and a
# covariance of trace 40 x 0.5²: a noise scale of 50 samples.
DIMENSIONS, SQR, TRACE = 40, 0.2, 10.0


def samples_of_known_noise(count: int) -> torch.Tensor:
    chance = torch.Generator().manual_seed(1)
    mean = torch.zeros(DIMENSIONS)
    mean[:5] = 0.2
    return mean + 0.5 * torch.randn(count, DIMENSIONS, generator=chance)


class Product(torch.nn.Module):
    """w·x, with w in two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.left = torch.nn.Parameter(torch.zeros(10))
        self.right = torch.nn.Parameter(torch.zeros(DIMENSIONS - 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.cat([self.left, self.right])


def test_two_sizes_of_batch_give_both_unknowns() -> None:
    scale = NoiseScale()
    scale.add(small_sqr=2.0 + 30.0 / 10, small=10, big_sqr=2.0 + 30.0 / 40, big=40)
    assert (scale.sqr, scale.var) == (pytest.approx(2.0), pytest.approx(30.0))
    assert scale.metrics(base_batch=20) == {"grad_sqr": pytest.approx(2.0), "grad_var": pytest.approx(1.5)}


def test_nothing_is_said_while_chance_outweighs_the_measurement() -> None:
    assert NoiseScale().metrics(20) == {}
    scale = NoiseScale()
    scale.add(small_sqr=4.0, small=10, big_sqr=0.5, big=40)
    assert scale.sqr < 0
    assert scale.metrics(20) == {}


def test_an_average_follows_what_changes_slowly() -> None:
    scale = NoiseScale()
    for true in [1.0] * 50 + [4.0] * 100:
        scale.add(small_sqr=true + 3.0, small=1, big_sqr=true + 1.0, big=3)
    assert scale.sqr == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("max_local_batch", [None, 8])
def test_a_job_alone_finds_the_noise_of_its_gradients(max_local_batch: int | None) -> None:
    model = Product()
    job = Job(model, torch.optim.SGD(model.parameters(), lr=0.0), None, world=World(), seed=0)
    data = torch.utils.data.TensorDataset(samples_of_known_noise(20_000))
    loader = job.loader(data, batch_size=20, shuffle=True, max_local_batch=max_local_batch)
    for _ in job.epochs(3):
        for (x,) in loader:
            job.step(model(x).mean())
    assert job.measured["grad_sqr"] == pytest.approx(SQR, rel=0.3)
    assert job.measured["grad_var"] == pytest.approx(TRACE / 20, rel=0.3)
    assert job.measured.get("max_local_batch") == max_local_batch


def test_a_rank_finds_it_by_its_own_part_of_a_batch_however_large_that_is() -> None:
    model = Product()
    gauge = Gauge(list(model.parameters()), rank=0, ranks=2, device=torch.device("cpu"))
    data = samples_of_known_noise(32 * EVERY * 60)
    for at in range(0, len(data), 32):
        mine, theirs = data[at : at + 8], data[at + 8 : at + 32]
        model.zero_grad()
        share = Share([], own=8, batch=32, position=0)
        gauge.before_backward(share, held=True)
        (model(mine).mean() * 8 * 2 / 32).backward()
        # What DistributedDataParallel does when a gradient is there: the mean of both ranks' takes its place.
        for parameter, part in ((model.left, theirs[:, :10]), (model.right, theirs[:, 10:])):
            parameter.grad = (parameter.grad + part.mean(0) * 24 * 2 / 32) / 2
        gauge.after_backward(share)
    gauge.settle()
    assert gauge.noise.count == 60
    assert gauge.noise.sqr == pytest.approx(SQR, rel=0.3)
    assert gauge.noise.var == pytest.approx(TRACE, rel=0.3)


def test_of_a_large_model_a_million_coordinates_are_looked_at() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in (1_300_001, 7, 900_000)]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(number))
    seen = Thinning(parameters).whole()
    assert len(seen) == -(-2_200_008 // 3)
    assert np.bincount(seen.int()).tolist() == [433_334, 2, 300_000]
