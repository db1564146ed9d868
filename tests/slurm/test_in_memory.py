"""Whatever the facts are: nodes of a job that trains are taken only where, by its own word, no rank of it is left."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ones_slurm.model.cluster import JobState
from ones_slurm.model.companion import companion_name
from ones_slurm.model.plan import Grow, Rebatch, Requeue, Shrink
from ones_slurm.model.settings import Moves
from ones_slurm.model.wire import Lent, Order, Phase, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.moves import OpenMove, next_step
from ones_slurm.slurm.steps import (
    JOINING,
    LEAVING,
    LENDING,
    STARTING,
    SWITCHING,
    GiveBack,
    Lend,
    PostOrder,
    RequeueHold,
    ShrinkTo,
    TurnBack,
)

NOW_S = 10_000.0
LIMITS = Moves(leave_timeout_s=60, start_timeout_s=100, companions="daemon", companion_timeout_s=40)
ACTIONS = [
    Shrink(job_id="1", generation=5, keep=("a", "b"), batch=128),
    Shrink(job_id="1", generation=5, keep=("a", "x"), batch=128),
    Shrink(job_id="1", generation=5, keep=("a", "b", "x", "y"), batch=128),
    Grow(job_id="1", generation=5, nodes=5, from_nodes=3, batch=320),
    Grow(job_id="1", generation=5, nodes=5, from_nodes=3, batch=192),
    Rebatch(job_id="1", generation=5, batch=512),
    Requeue(job_id="1", generation=5, nodes=4, from_nodes=2, batch=256),
]
TAKEN_BACK = TurnBack(LENDING, "refused", "no")
NAMES = st.sampled_from([companion_name("1", 0, 3), *[companion_name("1", 0, 5)] * 3, companion_name("1", 1, 5)])


def base(nodes):
    return JobRecord(job_id="1", user="u", state=JobState.RUNNING, nodes=tuple(nodes), batch_host=nodes[0])


def companion(job_id, nodes, name, state):
    return JobRecord(job_id=job_id, user="u", state=state, nodes=tuple(nodes), name=name, comment="ones:companion-of=1")


STATES = st.sampled_from([JobState.RUNNING, JobState.RUNNING, JobState.PENDING, JobState.ENDING, JobState.FAILED])
COMPANIONS = st.lists(
    st.builds(companion, st.just("7"), st.sampled_from(["xy", "x"]), NAMES, STATES), min_size=1, max_size=1
)
SYNCS = st.builds(
    Sync,
    phase=st.sampled_from([Phase.TRAINING, Phase.TRAINING, Phase.STARTING, Phase.LEAVING, Phase.LEFT]),
    generation=st.integers(3, 6),
    nodes=st.sampled_from(["abc", "ab", "abx", "axy", "abcxy", "ax"]).map(tuple),
    live=st.booleans(),
    companions=st.sampled_from([(), (Lent("7", ("x", "y")),)]),
    folder=st.just("/run"),
)
ORDER = Order(generation=5, kind="grow", go=True, batch=128, nodes=("a", "b"), live=True)
STANDING = st.sampled_from([None, ORDER, replace(ORDER, live=False, go=False), replace(ORDER, generation=4)])
MOVES = st.builds(
    OpenMove,
    action=st.sampled_from(ACTIONS),
    restarts=st.sampled_from([None, 0]),
    stage=st.sampled_from([LEAVING, LENDING, JOINING, SWITCHING, STARTING]),
    since_s=st.floats(NOW_S - 300, NOW_S),
    tried=st.sampled_from([frozenset(), frozenset({"lend"}), frozenset({"give back"}), frozenset({"shrink"})]),
    back=st.sampled_from([None, TAKEN_BACK]),
)


@given(MOVES, st.sampled_from(["abc", "ab"]), SYNCS, STANDING, COMPANIONS)
@settings(max_examples=800, deadline=None)
def test_nothing_is_taken_from_under_a_rank(move, nodes, sync, standing, companions):
    job = base(nodes)
    step = next_step(move, job, sync, standing=standing, now_s=NOW_S, limits=LIMITS, companions=tuple(companions))
    action = move.action
    if isinstance(step, ShrinkTo | GiveBack):
        lender = next((one for one in companions if one.job_id == step.lender), job)
        taken = set(lender.nodes) - set(getattr(step, "keep", ()))
        left = sync.phase is Phase.LEFT and sync.generation == 5
        trains_without = sync.phase is Phase.TRAINING and sync.generation >= 5 and taken.isdisjoint(sync.nodes)
        never_told = isinstance(action, Grow) and (standing is None or standing.generation != 5)
        assert left or trains_without or never_told
    if isinstance(step, ShrinkTo) and step.lender == "":
        assert job.batch_host in step.keep
    if isinstance(step, RequeueHold):
        assert all(one.state not in (JobState.PENDING, JobState.RUNNING) for one in companions)
    if isinstance(step, Lend):
        assert isinstance(action, Grow)
        assert not any(one.name == companion_name("1", 0, 5) for one in companions), "there is one already"
        assert (step.loan.nodes, step.loan.generation) == (2, 5)
    if isinstance(step, PostOrder) and step.order.live:
        assert sync.live or standing is not None
        there = {*job.nodes, *(name for one in companions for name in one.nodes)}
        assert isinstance(action, Shrink | Rebatch) or set(step.order.nodes) <= there
