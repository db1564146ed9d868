"""The move as a pure function: one line of facts, one next step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Rebatch, Requeue, Shrink, Start, Status
from ones_slurm.model.settings import Moves
from ones_slurm.model.wire import Declined, Order, Phase, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.moves import OpenMove, next_step
from ones_slurm.slurm.steps import (
    LEAVING,
    QUEUED,
    RESIZING,
    STARTING,
    Finish,
    PostOrder,
    Release,
    RequeueHold,
    ShrinkTo,
    SizePending,
    StartNow,
    TurnBack,
    Wait,
)

NOW_S = 10_000.0
LIMITS = Moves(leave_timeout_s=60, start_timeout_s=100)
SHRINK = Shrink(job_id="1", generation=5, keep=("a", "b"), batch=128, lr_scale=2.0)
REQUEUE = Requeue(job_id="1", generation=5, nodes=4, from_nodes=2, batch=256, lr_scale=4.0)
REBATCH = Rebatch(job_id="1", generation=5, batch=512, lr_scale=8.0)
START = Start(job_id="1", generation=5, nodes=3, batch=192)

RUNNING, PENDING = JobState.RUNNING, JobState.PENDING


def record(state=RUNNING, nodes="abc", **more):
    nodes = () if state is PENDING else tuple(nodes)
    shape = {"asked_nodes": len(nodes) or 2, "slurm_states": (str(state).upper(),)} | more
    return JobRecord(job_id="1", user="u", state=state, nodes=nodes, batch_host=nodes[0] if nodes else "", **shape)


def says(phase, generation, **more):
    return Sync(phase=phase, generation=generation, batch=192, **more)


def step(action, job, sync, *, stage=LEAVING, for_s=0.0, standing=None, restarts=0, tried=(), back=None):
    move = OpenMove(
        action=action, restarts=restarts, stage=stage, since_s=NOW_S - for_s, tried=frozenset(tried), back=back
    )
    return next_step(move, job, sync, standing=standing, now_s=NOW_S, limits=LIMITS)


def order(action, go, nodes=(), *, batch=None, lr_scale=None, reason=""):
    kind = action.__struct_config__.tag
    return Order(
        generation=5,
        kind=kind,
        go=go,
        batch=action.batch if batch is None else batch,
        lr_scale=action.lr_scale if lr_scale is None else lr_scale,
        nodes=tuple(nodes),
        reason=reason,
    )


LEAVE, LEFT, TRAINING, STARTS = Phase.LEAVING, Phase.LEFT, Phase.TRAINING, Phase.STARTING
HELD = {"held": True, "reason": "JobHeldUser"}


@pytest.mark.parametrize(
    ("job", "sync", "more", "expected"),
    [
        (record(), says(TRAINING, 4), {}, PostOrder(LEAVING, order(SHRINK, go=False))),
        (record(), None, {}, Wait(LEAVING)),
        (record(), says(TRAINING, 4), {"standing": order(SHRINK, go=False)}, Wait(LEAVING)),
        (record(), says(LEAVE, 4), {"standing": order(SHRINK, go=False)}, Wait(LEAVING)),
        (record(), says(LEFT, 4), {}, PostOrder(LEAVING, order(SHRINK, go=False))),
        (record(), says(LEFT, 5), {}, ShrinkTo(("a", "b"))),
        (record(nodes="ab"), says(LEFT, 5), {}, PostOrder(STARTING, order(SHRINK, go=True, nodes="ab"))),
        (record(nodes="ab"), says(STARTS, 5), {"standing": order(SHRINK, True, "ab")}, Wait(STARTING)),
        (record(nodes="ab"), says(TRAINING, 5), {}, Finish(Status.DONE, "trains")),
    ],
)
def test_a_shrink_from_its_order_to_its_end(job, sync, more, expected):
    assert step(SHRINK, job, sync, **more) == expected


@pytest.mark.parametrize(
    ("job", "sync", "more", "expected"),
    [
        (record(nodes="ab"), says(TRAINING, 4), {}, PostOrder(LEAVING, order(REQUEUE, go=False))),
        (record(nodes="ab"), says(LEFT, 5), {}, RequeueHold()),
        (record(JobState.ENDING, "ab"), says(LEFT, 5), {"stage": RESIZING}, Wait(RESIZING)),
        (record(PENDING, slurm_states=("PENDING", "COMPLETING"), **HELD), None, {"stage": RESIZING}, Wait(RESIZING)),
        (record(PENDING, restarts=1, **HELD), None, {"stage": RESIZING}, SizePending(4)),
        (record(PENDING, asked_nodes=4, **HELD), None, {"stage": RESIZING}, StartNow()),
        (record(PENDING, asked_nodes=4, **HELD), None, {"tried": {"start_now"}}, Release()),
        (record(PENDING, asked_nodes=4, submit_s=NOW_S - 1, **HELD), None, {"tried": {"start_now"}}, Wait(RESIZING)),
        (record(PENDING, asked_nodes=4, submit_s=NOW_S + 9, **HELD), None, {"tried": {"start_now"}}, Release()),
        (record(PENDING, asked_nodes=4), None, {"tried": {"start_now"}}, Wait(QUEUED)),
        (record(nodes="wxyz", restarts=1), None, {}, PostOrder(STARTING, order(REQUEUE, go=True, nodes="wxyz"))),
        (record(nodes="wxyz", restarts=1), says(LEFT, 5), {"standing": order(REQUEUE, True, "wxyz")}, Wait(STARTING)),
        (
            record(nodes="wxyz", restarts=1),
            says(STARTS, 4, restarts=1),
            {},
            PostOrder(STARTING, order(REQUEUE, go=True, nodes="wxyz")),
        ),
        (record(nodes="wxyz", restarts=1), says(TRAINING, 5, restarts=1), {}, Finish(Status.DONE, "trains")),
    ],
)
def test_a_requeue_from_its_order_to_its_end(job, sync, more, expected):
    assert step(REQUEUE, job, sync, **more) == expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (record(PENDING, asked_nodes=2), SizePending(3)),
        (record(PENDING, asked_nodes=3), Finish(Status.DONE, "asks for 3 nodes")),
        (record(nodes="abc"), Finish(Status.DONE, "the job has started")),
        (record(nodes="ab"), Finish(Status.REFUSED, "the job has started with 2 nodes")),
    ],
)
def test_a_start_sets_the_size_while_it_can(job, expected):
    assert step(START, job, None, stage=QUEUED) == expected


def test_a_rebatch_asks_nothing_of_slurm():
    assert step(REBATCH, record(), says(TRAINING, 4)) == PostOrder(LEAVING, order(REBATCH, go=False))
    assert step(REBATCH, record(), says(LEFT, 5)) == PostOrder(STARTING, order(REBATCH, go=True, nodes="abc"))
    assert step(REBATCH, record(), says(TRAINING, 5)) == Finish(Status.DONE, "trains")


NO_ROOM = TurnBack(RESIZING, Status.REFUSED, "no")


@pytest.mark.parametrize(
    ("action", "job", "sync", "more", "expected"),
    [
        (SHRINK, None, None, {}, Finish(Status.FAILED, "the job is gone")),
        (SHRINK, record(JobState.DONE), says(TRAINING, 4), {}, Finish(Status.REFUSED, "the job has finished")),
        (SHRINK, record(JobState.DONE), says(TRAINING, 5), {}, Finish(Status.DONE, "the job has finished")),
        (
            SHRINK,
            record(PENDING),
            None,
            {},
            Finish(Status.FAILED, "the job was put back in the queue by somebody else"),
        ),
        (REQUEUE, record(), says(Phase.FAILED, 4), {}, Finish(Status.FAILED, "the training failed")),
        (REQUEUE, record(), says(Phase.FINISHED, 4), {}, Finish(Status.REFUSED, "the training finished first")),
        (
            REQUEUE,
            record(nodes="abc", restarts=1),
            says(STARTS, 4, restarts=1),
            {},
            Finish(Status.FAILED, "the job was started with 3 nodes instead of 4"),
        ),
        (
            SHRINK,
            record(),
            says(TRAINING, 4, declined=Declined(5, "disk full")),
            {"for_s": 500},
            Finish(Status.REFUSED, "the job declined: disk full"),
        ),
        (
            SHRINK,
            record(),
            says(TRAINING, 6),
            {},
            Finish(Status.REFUSED, "the job did not wait for its order, and went on by itself with 3 nodes"),
        ),
        (
            SHRINK,
            record(),
            says(TRAINING, 4),
            {"for_s": 61},
            TurnBack(LEAVING, Status.FAILED, "the job did not stop within 60 s of its order"),
        ),
        (SHRINK, record(), None, {"for_s": 61}, Finish(Status.FAILED, "the job's wrapper said nothing for 60 s")),
        (SHRINK, record(nodes="acd"), says(LEFT, 5), {}, TurnBack(RESIZING, Status.FAILED, "the job lost b")),
        (
            SHRINK,
            record(nodes="cab"),
            says(LEFT, 5),
            {},
            TurnBack(RESIZING, Status.REFUSED, "the batch host c cannot be given back"),
        ),
        (
            REQUEUE,
            record(requeueable=False),
            says(LEFT, 5),
            {},
            TurnBack(RESIZING, Status.REFUSED, "the job may not be requeued any more"),
        ),
        (
            REQUEUE,
            record(PENDING, asked_nodes=4),
            None,
            {"stage": QUEUED, "for_s": 101, "tried": {"start_now"}},
            TurnBack(QUEUED, Status.FAILED, "did not start with 4 nodes within 100 s"),
        ),
        (REQUEUE, record(PENDING, asked_nodes=4), None, {"back": NO_ROOM}, SizePending(2)),
        (REQUEUE, record(PENDING, **HELD), None, {"back": NO_ROOM, "tried": {"start_now"}}, Release()),
        (
            REQUEUE,
            record(PENDING),
            None,
            {"back": NO_ROOM, "tried": {"start_now"}},
            Finish(Status.REFUSED, "no; it waits in the queue for 2 nodes"),
        ),
        (
            REQUEUE,
            record(PENDING, asked_nodes=4, **HELD),
            None,
            {"stage": QUEUED, "tried": {"start_now", "release"}},
            Finish(Status.REFUSED, "the job was held by somebody else while it waited"),
        ),
    ],
)
def test_what_can_go_wrong_has_its_own_answer(action, job, sync, more, expected):
    assert step(action, job, sync, **more) == expected


def test_a_job_that_is_turned_back_gets_the_batch_and_rate_that_it_had():
    """It had batch 192 where 128 was to go with factor 2, so by the linear rule it had factor 3."""
    told = step(SHRINK, record(), says(LEFT, 5), back=NO_ROOM)
    assert told == PostOrder(STARTING, order(SHRINK, go=True, nodes="abc", batch=192, lr_scale=3.0, reason="no"))


PHASES = st.sampled_from(list(Phase))
JOBS = st.builds(
    record,
    state=st.sampled_from([RUNNING, RUNNING, PENDING, JobState.ENDING, JobState.SUSPENDED, JobState.UNKNOWN]),
    nodes=st.sampled_from(["a", "ab", "abc", "bca", "abcd", "wxyz"]),
    asked_nodes=st.integers(1, 5),
    restarts=st.integers(0, 2),
    held=st.booleans(),
    requeueable=st.booleans(),
)
SYNCS = st.none() | st.builds(
    Sync, phase=PHASES, generation=st.integers(0, 8), restarts=st.integers(0, 2), batch=st.integers(0, 500)
)
MOVES = st.builds(
    OpenMove,
    action=st.sampled_from([SHRINK, REQUEUE, REBATCH, START]),
    restarts=st.none() | st.integers(0, 2),
    stage=st.sampled_from([LEAVING, RESIZING, QUEUED, STARTING]),
    since_s=st.floats(NOW_S - 300, NOW_S),
    tried=st.frozensets(st.sampled_from(["start_now", "release", "size 4", "size 2"])),
    back=st.none() | st.just(NO_ROOM),
)


@given(MOVES, JOBS, SYNCS)
@settings(max_examples=1500, deadline=None)
def test_whatever_the_facts_are_nodes_are_taken_only_from_a_job_that_has_left_for_this_generation(move, job, sync):
    taken = next_step(move, job, sync, standing=None, now_s=NOW_S, limits=LIMITS)
    if isinstance(taken, ShrinkTo | RequeueHold):
        assert sync is not None
        assert (sync.phase, sync.generation, sync.restarts >= job.restarts) == (LEFT, 5, True)
        assert job.state is RUNNING
    if isinstance(taken, ShrinkTo):
        assert set(taken.keep) <= set(job.nodes)
        assert job.batch_host in taken.keep
    if isinstance(taken, PostOrder) and taken.order.go:
        assert set(taken.order.nodes) == set(job.nodes)
    if isinstance(taken, SizePending | StartNow | Release):
        assert job.state is PENDING
