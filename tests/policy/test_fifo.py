"""First in, first out."""

import numpy as np
import pytest
from test_equal import cluster, job, rigid

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import Move
from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Constants, PolicyChoice
from ones_slurm.model.wish import Bounds
from ones_slurm.policy.fifo import Fifo
from ones_slurm.policy.registry import POLICIES, policy_named


def targets(view):
    plan = Fifo().decide(view, np.random.default_rng(0))
    check_plan(view, plan)
    return {target.job_id: target for target in plan.targets}


def sizes(view):
    return {job_id: target.nodes for job_id, target in targets(view).items()}


def test_everybody_keeps_the_size_that_it_asked_for():
    view = cluster(8, job("a", 3), job("b", asked_nodes=2, submit_s=1.0), job("c", asked_nodes=3, submit_s=2.0))
    assert sizes(view) == {"a": 3, "b": 2, "c": 3}


def test_the_first_who_does_not_fit_stops_all_behind_it():
    view = cluster(4, job("a", 2), job("b", asked_nodes=3, submit_s=1.0), job("c", asked_nodes=1, submit_s=2.0))
    assert sizes(view) == {"a": 2, "b": 0, "c": 0}


def test_rigid_jobs_stand_in_the_same_line():
    view = cluster(4, rigid("r", asked=3, submit_s=1.0), job("b", asked_nodes=2, submit_s=2.0))
    assert sizes(view) == {"b": 0}


def test_the_batch_is_the_base_batch_at_any_size():
    target = targets(cluster(4, job("a", 4, batch=Bounds(64, 4096))))["a"]
    assert (target.batch, target.lr_scale) == (64, 1.0)


def test_a_wish_that_the_request_contradicts_wins():
    assert sizes(cluster(8, job("a", asked_nodes=8, low=1, high=4))) == {"a": 4}


def test_nodes_that_a_job_on_the_move_will_need_are_not_given_away():
    moving = job("m", 0, move=Move(2, "requeue", "queued", 0.0, 3))
    assert sizes(cluster(4, moving, job("b", asked_nodes=2))) == {"b": 0}


def test_an_unknown_policy_is_answered_with_the_nearest():
    assert policy_named("equal").name == "equal"
    with pytest.raises(UsageError, match="did you mean 'equal'"):
        policy_named("equl")
    assert all(policy_named(name).name == name for name in POLICIES)


def test_a_policy_carries_the_constants_of_its_site_in_its_full_name():
    choice = PolicyChoice(name="psrpt", constants=Constants(alpha=0.25, shrink_gain=1.7))
    assert choice.full_name == "psrpt alpha=0.25 shrink_gain=1.7"
    assert PolicyChoice(name="ones").full_name == "ones"
    assert policy_named(choice.full_name)._constants == choice.constants


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ones alpha", "not understood"),
        ("ones alpha=much", "not understood"),
        ("ones beta=1", "not understood"),
        ("equal alpha=2", "equal has no constants"),
        ("", "there is no policy"),
    ],
)
def test_constants_that_are_none_are_refused(name, says):
    with pytest.raises(UsageError, match=says):
        policy_named(name)
