"""The truth of trainings: measured applications, and the ONES classes that end by themselves."""

import math
import pathlib

import pytest

from ones_slurm.sim.application import Application, rotated, spread
from ones_slurm.sim.early import EarlyStopped
from ones_slurm.sim.recipes import RECIPES, step_times, worth
from ones_slurm.sim.training import Training


@pytest.fixture
def bert(profiles: pathlib.Path) -> Application:
    return Application("bert", profiles)


def test_measured_placements_count_up_to_rotation_and_are_interpolated_in_the_local_batch(bert):
    assert rotated((2, 1)) == (1, 2)
    assert bert.step_times((1,), 4) == pytest.approx((1.4, 0.0))
    assert bert.step_times((2, 1), 8) == pytest.approx((1 + 0.8 + 0.5, 0.5))


def test_a_placement_that_was_not_measured_is_interpolated_between_those_that_were(bert):
    step_s, sync_s = bert.step_times((3, 3, 2), 4)
    assert step_s == pytest.approx(1.9)
    assert sync_s == pytest.approx(0.5)


def test_a_batch_is_split_into_as_few_passes_as_possible(bert):
    assert bert.split(4, 48) == (12, 0)
    assert bert.split(4, 96) == (12, 1)
    assert bert.split(1, 12) == (12, 0)
    assert bert.split(1, 14) == (7, 1)  # on one GPU a batch above the initial one needs accumulation
    assert bert.split(4, 12) == (4, 0)  # too small for four GPUs: the smallest measured share each


def test_a_training_takes_its_epochs_one_step_after_the_other(bert):
    job = Training(bert)
    job.begin((1,), 12)
    assert job.until_turn_s() == 220  # 100 steps of 2.2 s
    job.advance(220)
    assert not job.turn()
    job.advance(100)
    assert job.report().epoch == 1
    assert job.report().samples == int((100 + 100 / 2.2) * 12)
    job.advance(120)
    assert job.turn()


def test_a_larger_batch_learns_more_a_step_and_less_a_sample(bert):
    pace_small, _ = bert.pace((4,), 48, 0)
    pace_large, used = bert.pace((4,), 96, 0)
    assert used == 96
    # gain = (31 + 1) / (31 · 12/B + 1), over 2.7 s and over 2.7 + 2.2 s
    assert pace_small == pytest.approx(32 / (31 * 12 / 48 + 1) / 2.7)
    assert pace_large == pytest.approx(32 / (31 * 12 / 96 + 1) / 4.9)


def test_a_checkpoint_brings_back_epoch_and_progress(bert):
    job = Training(bert)
    job.begin((1,), 12)
    job.advance(220)
    job.turn()
    saved = job.saved()
    job.advance(100)
    job.restore(saved)
    assert job.work == 100
    assert job.until_turn_s() == 220


def test_the_rest_is_shorter_on_more_gpus_and_alone_is_the_whole(bert):
    job = Training(bert)
    assert job.remaining_s(1) == job.alone_s(1)
    assert job.remaining_s(4) < job.remaining_s(1)
    assert spread(10) == (4, 4, 2)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_each_ones_class_ends_by_itself_and_never_later_with_more_samples_a_second(name):
    recipe = RECIPES[name]
    for epoch_samples in recipe.epoch_samples:
        job = EarlyStopped(recipe, epoch_samples)
        hour = job.alone_s(1) / 3600
        assert 0.01 < hour < 3
        assert job.alone_s(2) < job.alone_s(1)
        assert job.remaining_s(1) == job.alone_s(1)


def test_a_sample_of_a_larger_batch_is_worth_less_and_never_more_than_one():
    recipe = RECIPES["resnet50-imagenet"]
    worths = [worth(recipe, batch) for batch in (16, 32, 64, 512)]
    assert worths[:2] == [1.0, 1.0]
    assert worths == sorted(worths, reverse=True)


def test_between_nodes_the_exchange_takes_longer():
    recipe = RECIPES["vgg16-cifar10"]
    assert step_times(recipe, 1, 1, 64)[1] == 0
    assert step_times(recipe, 2, 4, 64)[1] > step_times(recipe, 1, 4, 64)[1]


def test_a_job_that_is_over_stays_over():
    job = EarlyStopped(RECIPES["bert-mrpc"], 3600)
    job.begin((2,), 32)
    while True:
        job.advance(job.until_turn_s())
        if job.turn():
            break
    assert job.until_turn_s() == math.inf
    assert job.report().metrics["accuracy"] > 0.5
