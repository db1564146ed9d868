"""Random numbers after a step that is done again are those that it would have drawn."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic import chance  # noqa: E402

pytestmark = pytest.mark.torch

# Each draws from one generator; normal numbers come in pairs, of which the generator holds the second back.
DRAWS = {
    "python": random.random,
    "python, one of a pair": lambda: random.gauss(0.0, 1.0),
    "numpy": np.random.random,
    "numpy, one of a pair": np.random.randn,
    "torch": lambda: torch.rand(()).item(),
}


@pytest.fixture(autouse=True)
def generators_of_others():
    before = random.getstate(), np.random.get_state(), torch.get_rng_state(), np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(before[3])
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("drawn_before", [0, 1, 2, 623, 700])
def test_any_step_can_be_done_again(draw, drawn_before):
    chance.derive(7, 0, drawn_before)
    for _ in range(drawn_before):
        draw()
        chance.snapshot()
    boundary = chance.snapshot()
    first = [draw() for _ in range(5)]
    chance.go_back(boundary)
    assert [draw() for _ in range(5)] == first


def test_a_seed_set_by_the_script_counts():
    chance.snapshot()
    np.random.seed(3)
    random.seed(3)
    boundary = chance.snapshot()
    first = np.random.random(), random.random()
    np.random.seed(4)
    random.seed(4)
    chance.snapshot()
    chance.go_back(boundary)
    assert (np.random.random(), random.random()) == first


def test_a_script_may_choose_another_generator_of_numpy():
    np.random.set_bit_generator(np.random.PCG64(5))
    boundary = chance.snapshot()
    first = [np.random.random() for _ in range(3)]
    chance.snapshot()
    chance.go_back(boundary)
    assert [np.random.random() for _ in range(3)] == first
