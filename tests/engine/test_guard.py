"""What must always hold is checked on everything that passes the two sockets."""

import pytest
from views import job, plan, rigid, view

from ones_slurm.engine.guard import GuardedCluster, GuardedPolicy, InvariantError, check_actions, check_plan, check_view
from ones_slurm.engine.replay import chance
from ones_slurm.model.cluster import Move
from ones_slurm.model.plan import Outcome, Plan, Rebatch, Shrink, Status, Target


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (view(job("a", "c1"), job("a", "c2")), "two jobs with id a"),
        (view(job("a", "c1 c2"), rigid("r", "c2")), "job a is elastic and shares node c2"),
    ],
)
def test_an_impossible_view_is_refused(seen, what):
    with pytest.raises(InvariantError, match=what):
        check_view(seen)


def test_rigid_jobs_may_share_a_node():
    check_view(view(rigid("r", "c1"), rigid("s", "c1")))


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (plan(z=1), "job z is not in the view"),
        (plan(r=1), "job r is rigid"),
        (plan(a=9), "job a allows 1-8 nodes, not 9"),
        (plan(a=0), "job a allows 1-8 nodes, not 0"),
        (plan(a=(1, 63)), "batch of 64-4096, not 63"),
        (plan(a=4, b=4), "8 nodes are planned, and there are 7"),
        (Plan((Target(job_id="a", nodes=1), Target(job_id="a", nodes=2))), "two targets for job a"),
        (Plan((Target(job_id="a", nodes=1, lr_scale=float("nan")),)), "cannot train with"),
        (Plan((Target(job_id="a", nodes=1, lr_scale=float("inf")),)), "cannot train with"),
    ],
)
def test_an_impossible_plan_is_refused(wanted, what):
    with pytest.raises(InvariantError, match=what):
        check_plan(view(job("a", "c1"), job("b"), rigid("r", "c8")), wanted)


def test_nodes_that_a_shrink_is_giving_back_may_be_planned():
    shrinking = job("a", "c1 c2 c3", move=Move(2, "shrink", "leaving", 0.0, 1))
    check_plan(view(shrinking, job("b"), nodes=3), plan(b=2))
    with pytest.raises(InvariantError, match="3 nodes are planned, and there are 0, 2 more to come"):
        check_plan(view(shrinking, job("b"), nodes=3), plan(b=3))


def test_a_possible_plan_passes():
    check_plan(view(job("a", "c1"), job("b"), rigid("r", "c8")), plan(a=(3, 64), b=(4, 64)))
    check_plan(view(job("b")), plan(b=0))


@pytest.mark.parametrize(
    ("action", "what"),
    [
        (Shrink(job_id="a", generation=2, keep=("c2",), batch=64), "would lose its batch host c1"),
        (Shrink(job_id="a", generation=2, keep=("c1", "c9"), batch=64), "cannot keep c1, c9"),
        (Shrink(job_id="a", generation=2, keep=("c1", "c2"), batch=64), "cannot keep c1, c2"),
        (Shrink(job_id="a", generation=2, keep=(), batch=64), "cannot keep nothing"),
        (Rebatch(job_id="a", generation=1, batch=64), "job a is at generation 1 already"),
        (Rebatch(job_id="r", generation=2, batch=64), "not elastic"),
        (Rebatch(job_id="m", generation=2, batch=64), "already on the move"),
    ],
)
def test_an_impossible_action_is_refused(action, what):
    seen = view(job("a", "c1 c2"), rigid("r", "c3"), job("m", "c4", move=Move(2, "shrink", "leaving", 0.0, 1)))
    with pytest.raises(InvariantError, match=what):
        check_actions(seen, [action])


class Odd:
    """A cluster whose clock runs backwards and whose outcomes are somebody else's."""

    def __init__(self):
        self.times = [5.0, 4.0]

    def now(self):
        return 0.0

    def observe(self):
        return view(now_s=self.times.pop(0))

    def act(self, actions):
        return [Outcome("other", 1, Status.DONE) for _ in actions]

    def wait(self, until_s):
        return []


def test_a_cluster_is_held_to_its_word():
    cluster = GuardedCluster(Odd())
    cluster.observe()
    with pytest.raises(InvariantError, match="time runs backwards"):
        cluster.observe()
    with pytest.raises(InvariantError, match="the outcomes are not those of the actions"):
        cluster.act([Rebatch(job_id="a", generation=2, batch=64)])


def test_a_policy_that_breaks_is_named():
    class Broken:
        name = "broken"

        def decide(self, view, rng):
            raise ZeroDivisionError("x")

    with pytest.raises(InvariantError, match="policy broken failed: ZeroDivisionError"):
        GuardedPolicy(Broken()).decide(view(), chance(1, 1))
