"""What becomes of a plan, given what is there and what is under way."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views import job, plan, rigid, view

from ones_slurm.engine.guard import check_actions
from ones_slurm.engine.keep import choose_keep
from ones_slurm.engine.memory import Memory
from ones_slurm.engine.reconcile import reconcile
from ones_slurm.model.cluster import JobState, Move
from ones_slurm.model.plan import Grow, Plan, Rebatch, Requeue, Shrink, Start, Target
from ones_slurm.model.settings import Engine
from ones_slurm.model.wire import Lent

SETTINGS = Engine(grow_patience_ticks=2, min_move_gap_s=120, max_moves_per_tick=16)
PATIENT = dict.fromkeys("abc", 1)  # one plan before wanted them larger, so this one is the second


def decide(seen, wanted, *, growing=None, requested=(), moved_s=None, sized=None, settings=SETTINGS):
    memory = Memory(growing=growing or {}, moved_s=moved_s or {}, sized=sized or {})
    decisions, after = reconcile(seen, wanted, requested, memory, settings)
    check_actions(seen, [decision.action for decision in decisions if decision.action is not None])
    return {decision.job_id: decision for decision in decisions}, after


def actions(*args, **more):
    decisions, _ = decide(*args, **more)
    return {job_id: decision.action for job_id, decision in decisions.items() if decision.action is not None}


def test_a_growth_must_be_wanted_twice_and_then_costs_a_requeue():
    seen, wanted = view(job("a", "c1")), plan(a=(4, 256))
    decisions, memory = decide(seen, wanted)
    assert decisions["a"].action is None
    assert "only if that stays so" in decisions["a"].reason
    assert memory.growing == {"a": 1}
    grown = actions(seen, wanted, growing=memory.growing)
    assert grown == {"a": Requeue(job_id="a", generation=2, nodes=4, batch=256, reason="so", from_nodes=1)}


def test_a_plan_that_changes_its_mind_starts_the_patience_anew():
    _, memory = decide(view(job("a", "c1")), plan(a=1), growing={"a": 5})
    assert memory.growing == {}


def test_where_nodes_can_be_lent_a_growth_costs_nothing_and_goes_at_once():
    seen = view(job("a", "c1", live=True, can_grow=True, requeueable=False))
    assert actions(seen, plan(a=(4, 256))) == {
        "a": Grow(job_id="a", generation=2, nodes=4, from_nodes=1, batch=256, reason="so")
    }
    crowded = view(job("a", "c1", live=True, can_grow=True), job("b"), nodes=2)
    assert "a" not in actions(crowded, plan(a=2, b=(1, 64))), "who waits comes before who grows"


def test_own_nodes_on_which_ranks_died_are_entered_anew():
    seen = view(job("a", "c1 c2 c3", live=True, idle=("c2",)))
    assert actions(seen, plan(a=3)) == {"a": Rebatch(job_id="a", generation=2, batch=64, reason="so")}
    needed = view(job("a", "c1 c2 c3", live=True, idle=("c2",)), job("b"), nodes=3)
    assert actions(needed, plan(a=2, b=(1, 64)))["a"].keep == ("c1", "c3"), "or given back first"


def test_broken_and_lent_nodes_on_which_ranks_died_are_given_back():
    broken = view(job("a", "c1 c2 c3", live=True, idle=("c2",)), broken={"c2"})
    given_back = {"a": Shrink(job_id="a", generation=2, keep=("c1", "c3"), batch=64, reason="so")}
    assert actions(broken, plan(a=3)) == given_back
    lent = (Lent("8", ("c3", "c2")),)
    assert actions(view(job("a", "c1 c2 c3", live=True, idle=("c2",), lent=lent)), plan(a=3)) == given_back


def test_a_shrink_waits_for_somebody_who_needs_the_nodes():
    alone, _ = decide(view(job("a", "c1 c2 c3 c4"), nodes=4), plan(a=2))
    assert alone["a"].action is None
    assert alone["a"].reason == "could be smaller, but nobody needs the nodes yet"
    needed = actions(view(job("a", "c1 c2 c3 c4"), job("b"), nodes=4), plan(a=2, b=(2, 64)))
    assert needed["a"] == Shrink(job_id="a", generation=2, keep=("c1", "c2"), batch=64, reason="so")


def test_nodes_that_are_free_or_coming_are_used_before_anybody_shrinks():
    free = view(job("a", "c1 c2 c3 c4"), job("b"), nodes=6)
    assert "a" not in actions(free, plan(a=2, b=2))
    ending = rigid("e", "c5 c6", state=JobState.ENDING)
    assert "a" not in actions(view(job("a", "c1 c2 c3 c4"), job("b"), ending, nodes=6), plan(a=2, b=2))
    smaller = job("s", "c5 c6 c7", move=Move(2, "shrink", "leaving", 0.0, 1))
    assert "a" not in actions(view(job("a", "c1 c2 c3 c4"), job("b"), smaller, nodes=7), plan(a=2, b=2))


def test_only_as_many_shrink_as_are_needed():
    seen = view(job("a", "c1 c2 c3"), job("b", "c4 c5 c6"), job("c"), nodes=6)
    assert list(actions(seen, plan(a=2, b=2, c=(1, 64)))) == ["a", "c"]


def test_a_growth_that_has_waited_long_enough_makes_another_job_smaller_first():
    seen = view(job("a", "c1 c2 c3"), job("b", "c4"), nodes=4)
    wanted = plan(a=2, b=2)
    assert actions(seen, wanted) == {}, "not before the growth has proven itself"
    assert list(actions(seen, wanted, growing=PATIENT)) == ["a"]


def test_a_drained_node_is_left_at_once_and_first():
    seen = view(job("a", "c1 c2 c3"), nodes=3, broken={"c2"})
    assert actions(seen, plan(a=2))["a"].keep == ("c1", "c3")


def test_free_nodes_go_to_moves_under_way_then_to_those_who_wait_then_to_growths():
    mover = job("m", move=Move(2, "requeue", "queued", 0.0, 3))
    assert "a" not in actions(view(job("a", "c1"), mover, nodes=4), plan(a=2), growing=PATIENT)
    waiter = job("w")
    assert "a" not in actions(view(job("a", "c1"), waiter, nodes=2), plan(a=2, w=(1, 64)), growing=PATIENT)
    assert "a" not in actions(view(job("a", "c1"), rigid("r"), nodes=2), plan(a=2), growing=PATIENT)
    assert "a" in actions(view(job("a", "c1"), rigid("r", held=True), nodes=2), plan(a=2), growing=PATIENT)


def test_two_growths_do_not_get_the_same_node():
    seen = view(job("a", "c1"), job("b", "c2"), nodes=3)
    assert list(actions(seen, plan(a=2, b=2), growing=PATIENT)) == ["a"]


def test_a_waiting_job_is_told_its_size_once():
    seen, wanted = view(job("a")), plan(a=(2, 128))
    decisions, memory = decide(seen, wanted)
    assert decisions["a"].action == Start(job_id="a", generation=1, nodes=2, batch=128, reason="so")
    assert memory.sized == {"a": (2, 128)}
    told = view(job("a", asked_nodes=2, batch=128, generation=1))
    assert actions(told, wanted, sized=memory.sized) == {}


def test_a_size_that_was_not_taken_is_told_again_only_after_a_while():
    seen, wanted = view(job("a", generation=1)), plan(a=(2, 128))
    assert actions(seen, wanted, sized={"a": (2, 128)}, moved_s={"a": 950.0}) == {}
    assert list(actions(seen, wanted, sized={"a": (2, 128)}, moved_s={"a": 800.0})) == ["a"]


def test_a_waiting_job_that_is_to_wait_or_is_held_is_left_alone():
    decisions, _ = decide(view(job("a"), job("b", held=True)), plan(a=0, b=2))
    assert {job_id: one.action for job_id, one in decisions.items()} == {"a": None, "b": None}
    assert decisions["b"].reason == "is held, or waits for something else than nodes"


def test_another_batch_alone_is_worth_a_stop_from_a_tenth_on():
    seen = view(job("a", "c1", batch=100))
    assert actions(seen, plan(a=(1, 109))) == {}
    assert actions(seen, plan(a=(1, 110)))["a"] == Rebatch(job_id="a", generation=2, batch=110, reason="so")


@pytest.mark.parametrize(
    ("more", "site", "memory", "reason"),
    [
        ({"move": Move(2, "shrink", "leaving", 0.0, 1)}, {}, {}, "a shrink to 1 nodes is under way (leaving)"),
        ({}, {}, {"requested": {"a"}}, "a move is under way"),
        ({"elastic": False, "why_rigid": "no wrapper answers"}, {}, {}, "no wrapper answers"),
        ({"state": JobState.SUSPENDED}, {}, {}, "is suspended"),
        ({}, {}, {"moved_s": {"a": 950.0}}, "was moved less than 120 s ago"),
        ({"requeueable": False}, {}, {}, "could be larger, but a requeue is not allowed here or for this job"),
        ({}, {"can_requeue": False}, {}, "could be larger, but a requeue is not allowed here or for this job"),
        ({}, {"nodes": 2}, {}, "could be larger, but the nodes are not free yet"),
    ],
)
def test_why_nothing_happens_is_said(more, site, memory, reason):
    wanted = plan(a=4) if more.get("elastic", True) else Plan()
    decisions, _ = decide(view(job("a", "c1", **more), **site), wanted, growing=PATIENT, **memory)
    assert (decisions["a"].action, decisions["a"].reason) == (None, reason)


def test_where_no_shrink_is_allowed_a_smaller_size_costs_a_requeue():
    seen = view(job("a", "c1 c2"), job("b"), nodes=2, can_shrink=False)
    assert actions(seen, plan(a=1, b=(1, 64)))["a"] == Requeue(
        job_id="a", generation=2, nodes=1, batch=64, reason="so", from_nodes=2
    )


def test_a_tick_moves_only_so_many_and_starts_come_first():
    seen = view(job("a", "c1", batch=64), job("b"), job("c"))
    few = Engine(grow_patience_ticks=1, max_moves_per_tick=2)
    assert list(actions(seen, plan(a=2, b=(2, 64), c=(2, 64)), settings=few)) == ["b", "c"]


@pytest.mark.parametrize(
    ("nodes", "host", "count", "preferred", "broken", "keep"),
    [
        ("c1 c2 c10 c11", "c1", 2, (), (), ("c1", "c2")),
        ("c2 c10 c11", "c11", 2, (), (), ("c10", "c11")),
        ("c1 c2 c3", "c2", 1, ("c1", "c3"), (), ("c2",)),
        ("c1 c2 c3", "c2", 2, ("c3",), (), ("c2", "c3")),
        ("c1 c2 c3", "c1", 2, (), ("c2",), ("c1", "c3")),
        ("c1 c2 c3", "c1", 2, (), ("c1",), ("c1", "c2")),
    ],
)
def test_who_is_kept(nodes, host, count, preferred, broken, keep):  # noqa: PLR0917  (a table)
    one = job("a", nodes, batch_host=host)
    assert choose_keep(one, count, preferred, set(one.nodes) - set(broken)) == keep


@pytest.mark.parametrize(
    ("count", "preferred", "broken", "keep"),
    [
        (5, (), (), ("c1", "c2", "c3", "c4", "c7")),
        (4, (), (), ("c1", "c2", "c3", "c4")),
        (3, (), (), ("c1", "c2", "c4")),
        (2, (), (), ("c1", "c2")),
        (3, (), ("c2", "c4"), ("c1", "c2", "c7")),
        (3, ("c3",), (), ("c1", "c3", "c4")),
    ],
)
def test_loans_go_back_before_own_nodes_the_latest_first_and_their_first_node_last(count, preferred, broken, keep):
    """c1 and c2 are its own; c4 and c3 were lent first, by a job that has its batch host on c4; then c7."""
    one = job("a", "c1 c2 c3 c4 c7", lent=(Lent("8", ("c4", "c3")), Lent("9", ("c7",))))
    assert choose_keep(one, count, preferred, set(one.nodes) - set(broken)) == keep


@st.composite
def situations(draw):
    free, jobs, targets = [f"c{n}" for n in range(1, 9)], [], []
    for name in "abcdef"[: draw(st.integers(1, 6))]:
        held, free = free[: (count := draw(st.integers(0, 3)))], free[count:]
        move = draw(st.none() | st.none() | st.just(Move(2, "requeue", "leaving", 0.0, 2)))
        jobs.append(
            job(name, " ".join(held), move=move, held=draw(st.booleans()), requeueable=draw(st.booleans()))
            if draw(st.integers(0, 4))
            else rigid(name, " ".join(held))
        )
        targets.append(
            Target(job_id=name, nodes=draw(st.integers(0 if not held else 1, 5)), batch=draw(st.integers(0, 999)))
        )
    broken = draw(st.sets(st.sampled_from([f"c{n}" for n in range(1, 9)]), max_size=3))
    options = {"can_shrink": draw(st.booleans()), "can_requeue": draw(st.booleans())}
    return view(*jobs, broken=broken, **options), Plan(tuple(targets))


@given(situations(), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)))
@settings(max_examples=400, deadline=None)
def test_actions_always_pass_the_guard_and_growths_fit_into_what_is_free(situation, growing):
    seen, wanted = situation
    found = actions(seen, wanted, growing=growing)
    jobs = {one.job_id: one for one in seen.jobs}
    usable = {node.name for node in seen.nodes if node.usable}
    more = sum(
        action.nodes - len(usable & set(jobs[job_id].nodes))
        for job_id, action in found.items()
        if isinstance(action, Requeue) and action.nodes > len(jobs[job_id].nodes)
    )
    assert more <= len(seen.free_nodes())
    assert all(jobs[job_id].elastic and jobs[job_id].move is None for job_id in found)


def test_ten_thousand_jobs_are_reconciled_in_well_under_a_second():
    running = [job(f"r{n}", f"c{2 * n + 1} c{2 * n + 2}") for n in range(400)]
    waiting = [job(f"w{n}") if n % 2 else rigid(f"w{n}") for n in range(9600)]
    seen = view(*running, *waiting, nodes=1000)
    wanted = Plan(tuple(Target(job_id=one.job_id, nodes=1, batch=64) for one in seen.jobs if one.elastic))
    began_s = time.process_time()
    decide(seen, wanted)
    assert time.process_time() - began_s < 1.5
