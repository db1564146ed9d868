"""Constants evolved on a site's own past, and adopted only when they win on what was not seen."""

import dataclasses

import pytest

from ones_slurm.model.errors import UsageError
from ones_slurm.policy.ones.constants import DEFAULTS
from ones_slurm.sim.nodes import node_views
from ones_slurm.sim.synth import synthesise
from ones_slurm.sim.workload import Choices, submissions
from ones_slurm.study.setting import Setting
from ones_slurm.study.tuning import BOUNDS, CLEARLY, tune

SETTING = Setting(nodes=4)
# Never grows, shrinks at once and charges four times the price: nobody would want these.
BAD = dataclasses.replace(DEFAULTS, alpha=4.0, grow_below=0.3, shrink_gain=1.1)


def jobs(count, seed=1):
    rows = synthesise(count, hours=count / 30, mix={"resnet18-cifar10": 1.0, "bert-cola": 1.0}, seed=seed)
    return submissions(rows, Choices(elastic=True, largest=16))


def found(present, **more):
    return tune(jobs(36), node_views(SETTING.kinds), SETTING, present=present, **more)


def test_from_bad_constants_it_finds_better_ones_and_adopts_them():
    tuned = found(BAD, generations=2)
    assert tuned.adopted
    assert tuned.after_s < tuned.before_s * (1.0 - CLEARLY)
    assert tuned.constants != BAD
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(tuned.constants, name) <= high


def test_what_does_not_clearly_win_on_unseen_jobs_is_not_adopted():
    tuned = found(DEFAULTS, generations=0)
    assert not tuned.adopted
    assert tuned.constants == DEFAULTS
    assert tuned.after_s == tuned.before_s


def test_the_same_seed_finds_the_same():
    assert found(BAD, generations=1, seed=3) == found(BAD, generations=1, seed=3)


def test_a_few_jobs_are_no_ground_to_tune_on():
    with pytest.raises(UsageError, match="too few"):
        tune(jobs(10), node_views(SETTING.kinds), SETTING)
