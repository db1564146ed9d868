"""Every sample once an epoch, whatever happens to the world."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.elastic.sampler import check_fits, order_of_epoch, portions, shares, steps_left
from ones_slurm.model.errors import UsageError

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 12)), max_size=12)


@given(samples=st.integers(9, 300), sizes=SIZES, seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_an_epoch_visits_every_sample_once_through_any_sequence_of_sizes(
    samples: int, sizes: list[tuple[int, int, int]], seed: int, epoch: int
) -> None:
    order = order_of_epoch(samples, seed=seed, epoch=epoch, shuffle=True)
    seen: list[int] = []
    position = 0
    for ranks, batch, steps in [*sizes, (4, 16, samples)]:
        plans = [shares(order, position=position, batch=batch, rank=rank, ranks=ranks) for rank in range(ranks)]
        for step in list(zip(*plans, strict=True))[:steps]:
            sizes_of_shares = [share.own for share in step]
            assert max(sizes_of_shares) - min(sizes_of_shares) <= 1
            assert sum(sizes_of_shares) == step[0].batch
            assert len({(share.batch, share.position) for share in step}) == 1
            assert all(len(share.indices) >= 1 for share in step)
            seen += [index for share in step for index in share.indices[: share.own]]
            position = step[0].position
    assert sorted(seen) == list(range(samples))


def test_a_rest_smaller_than_the_world_is_folded_into_the_last_batch() -> None:
    steps = [share.batch for share in shares(np.arange(25), position=0, batch=8, rank=0, ranks=4)]
    assert steps == [8, 8, 9]
    assert steps_left(25, 0, 8, 4) == 3


def test_a_rank_without_a_sample_borrows_one_that_does_not_count() -> None:
    last = [next(shares(np.arange(10), position=8, batch=8, rank=rank, ranks=4)) for rank in range(4)]
    assert [(share.indices, share.own) for share in last] == [([8], 1), ([9], 1), ([8], 0), ([8], 0)]


def test_epochs_are_shuffled_differently_and_repeatably() -> None:
    first, again, second = (order_of_epoch(50, seed=1, epoch=epoch, shuffle=True).tolist() for epoch in (0, 0, 1))
    assert first == again != second
    assert order_of_epoch(5, seed=1, epoch=0, shuffle=False).tolist() == [0, 1, 2, 3, 4]


def test_a_dataset_smaller_than_the_world_is_refused() -> None:
    with pytest.raises(UsageError, match="3 samples, fewer than the 4 ranks"):
        check_fits(3, 4)


def test_parts_of_a_batch_are_as_the_weights_are_to_each_other() -> None:
    assert portions(64, (3, 1)) == (48, 16)
    assert portions(10, (1, 1, 1, 1)) == (3, 3, 2, 2)
    assert portions(10, (1000, 333)) == (8, 2)
    assert portions(4, (1000, 1, 1)) == (2, 1, 1), "each rank needs a sample to take part"
    assert portions(2, (1, 1, 1)) == (1, 1, 0)


@given(batch=st.integers(1, 500), weights=st.lists(st.integers(1, 1000), min_size=1, max_size=9).map(tuple))
def test_parts_make_up_the_batch_and_faster_ranks_get_no_less(batch: int, weights: tuple[int, ...]) -> None:
    parts = portions(batch, weights)
    assert sum(parts) == batch
    assert batch < len(weights) or min(parts) >= 1
    by_weight = [part for _, part in sorted(zip(weights, parts, strict=True))]
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(by_weight))


def test_a_part_that_does_not_fit_comes_in_as_many_shares_on_every_rank() -> None:
    plan = [list(shares(np.arange(13), position=0, batch=13, rank=r, ranks=2, max_local=3)) for r in range(2)]
    assert [[share.indices for share in rank] for rank in plan] == [
        [[0, 1], [2, 3], [4, 5, 6]],
        [[7, 8], [9, 10], [11, 12]],
    ]
    assert [[share.last for share in rank] for rank in plan] == [[False, False, True]] * 2
    assert {share.batch for rank in plan for share in rank} == {13}
