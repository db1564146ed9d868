"""The published operators, each by itself."""

import numpy as np
import pytest
from ones_views import job, view

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.wire import Progress
from ones_slurm.policy.ones import genome
from ones_slurm.policy.ones.genome import IDLE
from ones_slurm.policy.ones.limits import Limit, batch_at_gpus, limits_of
from ones_slurm.policy.ones.paper import OnesPaper


def test_refresh_keeps_the_first_genes_up_to_the_limit_and_at_least_one():
    assert genome.refresh(np.array([[0, 0, 0, 1, 1]]), np.array([2, 0])).tolist() == [[0, 0, IDLE, 1, IDLE]]


def test_children_have_no_gene_that_neither_parent_had_and_respect_limits():
    rng = np.random.default_rng(0)
    parents = np.array([[0, 0, 1, 1], [1, 1, 0, 2]])
    children = genome.crossover(parents, np.array([1, 2, 4]), rng)
    for child in children:
        assert all(gene in {IDLE, *parents[:, at]} for at, gene in enumerate(child))
    assert genome.counts_of(children, 3)[:, 0].max() <= 1


def test_a_mutation_throws_out_whole_jobs_and_spares_young_ones():
    genes = np.tile([0, 0, 1, 1, 2], (200, 1))
    counts = genome.counts_of(genome.mutate(genes, np.array([False, False, True]), np.random.default_rng(1)), 3)
    assert set(counts[:, 0]) == {0, 2}
    assert set(counts[:, 2]) == {1}
    assert np.mean(counts[:, 0] == 0) == pytest.approx(0.3, abs=0.1)


def test_padding_serves_the_new_first_and_then_fills_up():
    padded = genome.pad(np.full((1, 6), IDLE), [2], [0, 1], np.array([2, 1, 0]), np.array([4, 1, 1]))
    assert genome.counts_of(padded, 3).tolist() == [[4, 1, 1]]


def test_blocks_are_contiguous_and_move_as_few_gpus_as_possible():
    now = np.array([0, 0, 1, 1, IDLE, IDLE, 2, 2])
    laid = genome.reorder(np.array([2, 4, 2]), now)
    assert laid.tolist() == [0, 0, 1, 1, 1, 1, 2, 2]


def test_limits_double_after_two_epochs_up_to_four_times_the_request():
    young = job("young", (0, 1), progress=Progress(epoch=1, samples=100, metrics={"epoch_samples": 100.0}))
    grown = job("grown", (1, 4), progress=Progress(epoch=3, samples=300, metrics={"epoch_samples": 100.0}))
    new = job("new", measured=())
    assert limits_of([young, grown, new], 64, 100.0) == [Limit(1, 1), Limit(4, 8), Limit(0, 1)]


@pytest.mark.parametrize(
    ("gpus", "batch", "factor"), [(1, 256, 1.0), (8, 2048, 8.0), (16, 4096, 16.0), (20, 4080, 16.0)]
)
def test_the_batch_grows_with_the_gpus_up_to_the_cap(gpus, batch, factor):
    assert batch_at_gpus(256, 4096, gpus) == (batch, factor)


def test_a_new_job_starts_on_one_gpu_whatever_was_asked_for():
    seen = view(2, job("new", measured=(), asked_gpus=8))
    plan = OnesPaper().decide(seen, np.random.default_rng(1))
    check_plan(seen, plan)
    assert [gpus for _, gpus in plan.targets[0].allocation] == [1]


def test_nobody_is_moved_before_an_epoch_has_passed_since_the_last_move():
    told = Progress(epoch=5, samples=500, samples_per_s=0.001, base_batch=32, metrics={"epoch_samples": 100.0})
    just_moved = job("j", (0, 1), progress=told, start_s=9_990.0, asked_gpus=4)
    plan = OnesPaper().decide(view(2, just_moved), np.random.default_rng(1))
    assert plan.targets[0].allocation == (("n0000", 1),)
