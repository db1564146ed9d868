"""Each sample once an epoch, as the script sees it: through the DataLoader, its workers, and any sequence of worlds."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from ones_slurm.elastic.loader import Loader  # noqa: E402
from ones_slurm.elastic.world import World  # noqa: E402
from ones_slurm.model.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.torch


@dataclasses.dataclass
class Numbers(torch.utils.data.Dataset[int]):
    """Sample i is the number i."""

    samples: int

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


@dataclasses.dataclass
class Generation:
    """A world that trains for so many steps and is then left, whatever its workers have read ahead."""

    weights: list[int]
    batch: int
    steps: int
    max_local: int | None


GENERATIONS = st.lists(
    st.builds(
        Generation,
        weights=st.lists(st.integers(1, 9), min_size=1, max_size=6),
        batch=st.integers(1, 30),
        steps=st.integers(1, 6),
        max_local=st.none() | st.integers(1, 5),
    ),
    max_size=5,
)


def a_loader(samples: int, generation: Generation, rank: int, position: int, workers: int = 0) -> Loader:
    made = Loader(
        Numbers(samples),
        world=World(rank=rank, size=len(generation.weights)),
        batch=generation.batch,
        shuffle=True,
        seed=4,
        begin=lambda: None,
        drawing=lambda share: None,
        max_local=generation.max_local,
        num_workers=workers,
    )
    made.weights, made.position = tuple(generation.weights), position
    return made


def trained_on(loader: Loader, steps: int) -> tuple[list[int], list[int]]:
    """The samples that counted in `steps` steps, and the sizes of all shares; moves the position as a job does."""
    seen: list[int] = []
    sizes: list[int] = []
    for numbers in loader:
        share = loader.drawn
        assert share is not None
        assert numbers.tolist() == share.indices
        seen += share.indices[: share.own]
        sizes.append(len(share.indices))
        if share.last:
            loader.position = share.position
            steps -= 1
        if steps == 0:
            break
    return seen, sizes


def whole_epoch(samples: int, generations: list[Generation], workers: int) -> list[int]:
    position, seen = 0, []
    for generation in [*generations, Generation([1, 1], 7, samples, None)]:
        ends = set()
        for rank in range(len(generation.weights)):
            loader = a_loader(samples, generation, rank, position, workers)
            mine, sizes = trained_on(loader, generation.steps)
            seen += mine
            ends.add(loader.position)
            assert max(sizes, default=0) <= (generation.max_local or samples)
        (position,) = ends
    return sorted(seen)


@settings(max_examples=60, deadline=None)
@given(samples=st.integers(6, 120), generations=GENERATIONS)
def test_every_sample_is_seen_once_through_any_worlds_batches_and_shares(
    samples: int, generations: list[Generation]
) -> None:
    assert whole_epoch(samples, generations, workers=0) == list(range(samples))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@settings(max_examples=5, deadline=None)
@given(samples=st.integers(6, 40), generations=GENERATIONS.map(lambda some: some[:2]))
def test_and_so_it_is_with_workers_that_read_ahead(samples: int, generations: list[Generation]) -> None:
    assert whole_epoch(samples, generations, workers=1) == list(range(samples))


@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(2, 90),
    batch=st.integers(1, 30),
    others=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=4),
)
def test_shares_may_change_in_mid_epoch_within_one_loop(
    samples: int, batch: int, others: list[tuple[int, int]]
) -> None:
    seen: list[int] = []
    for rank in range(2):
        loader, ahead = a_loader(samples, Generation([1, 1], batch, 0, 4), rank, 0), list(others)
        for _ in loader:
            share = loader.drawn
            assert share is not None
            seen += share.indices[: share.own]
            if share.last:
                loader.position = share.position
                if ahead:
                    loader.weights = ahead.pop()
                    loader.plan_again()
    assert sorted(seen) == list(range(samples))


def test_its_length_is_what_it_will_yield() -> None:
    loader = a_loader(50, Generation([3, 1], 16, 0, 5), 0, 2)
    assert len(loader) == len(trained_on(loader, 50)[1]) == 9


def test_a_share_of_no_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="max_local_batch must be at least 1, not 0"):
        a_loader(50, Generation([1], 16, 0, 0), 0, 0)
