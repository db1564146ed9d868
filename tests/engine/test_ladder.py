"""Who is moved, who is advised, and what is only written down: the ladder around a cluster and a policy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views import job, rigid, view

from ones_slurm.engine.guard import GuardedPolicy, check_actions
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.ladder import Ladder, Laddered
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.reconcile import reconcile
from ones_slurm.engine.records import Run, Tick
from ones_slurm.engine.replay import replay
from ones_slurm.model.adoption import Adoption, Control, Rung
from ones_slurm.model.plan import Outcome, Plan, Rebatch, Shrink, Start, Status, Target
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.model.wire import Lent
from ones_slurm.policy.registry import policy_named

NOW_S = 1764576000.0  # a Monday, 8 o'clock UTC


class Place:
    """A cluster that shows these jobs and takes every action; `word` is what an administrator last said."""

    def __init__(self, *jobs):
        self.jobs, self.now_s, self.word, self.acted = jobs, NOW_S, Control.RUN, []

    def now(self):
        return self.now_s

    def observe(self):
        return view(*self.jobs, now_s=self.now_s)

    def act(self, actions):
        self.acted += actions
        return [Outcome(action.job_id, action.generation, Status.ACCEPTED) for action in actions]

    def wait(self, until_s):
        self.now_s = until_s
        return []


@pytest.fixture
def journal(tmp_path):
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        journal.begin_run(Run(policy="equal", seed=1), NOW_S)
        yield journal


def on_ladder(place, journal, **adoption):
    return Ladder(place, Adoption(**adoption), journal, lambda: place.word)


def rungs(seen):
    return {one.job_id: one.rung for one in seen.jobs}


def decide(seen, policy="equal"):
    return Laddered(GuardedPolicy(policy_named(policy))).decide(seen, np.random.default_rng(7))


def sizes(targets):
    return {target.job_id: target.nodes for target in targets}


def reasons(seen, plan):
    decisions, _ = reconcile(seen, plan, (), Memory(), EngineSettings())
    assert [one for one in decisions if one.action is not None and rungs(seen)[one.job_id] is not Rung.ACT] == []
    return {one.job_id: one.reason for one in decisions}


TWO = (job("a", "c1 c2", user="ann"), job("b", "c3 c4", user="bob"))


def test_everybody_at_act_is_the_policy_itself(journal):
    seen = on_ladder(Place(*TWO), journal).observe()
    assert decide(seen) == policy_named("equal").decide(seen, np.random.default_rng(7))
    assert decide(seen).advice == ()


def test_a_job_at_advise_is_told_its_size_and_keeps_the_one_it_has(journal):
    seen = on_ladder(Place(*TWO), journal, users={"bob": "advise"}).observe()
    plan = decide(seen)
    assert sizes(plan.targets) == {"a": 6}  # all that is free, beside the two of b
    assert sizes(plan.advice) == {"b": 4}
    said = reasons(seen, plan)["b"]
    assert said.startswith("advice: 4 nodes, batch 256: ")
    assert said.endswith("is at advise (the site file has user bob at advise)")


def test_of_a_job_at_observe_the_journal_alone_knows_what_would_be_done(journal):
    seen = on_ladder(Place(*TWO), journal, users={"bob": "observe"}).observe()
    plan = decide(seen)
    assert sizes(plan.advice) == {"b": 4}
    assert reasons(seen, plan)["b"] == "is at observe (the site file has user bob at observe)"


def test_a_job_at_off_is_rigid_in_both_decisions(journal):
    seen = on_ladder(Place(*TWO), journal, users={"bob": "off"}).observe()
    plan = decide(seen)
    assert (sizes(plan.targets), plan.advice) == ({"a": 6}, ())
    assert reasons(seen, plan)["b"] == "the site file has user bob at off"


@pytest.mark.parametrize("policy", ["equal", "ones", "fifo", "psrpt"])
def test_the_same_view_and_chance_give_the_same_plan_and_advice(journal, policy):
    jobs = (*TWO, job("w", user="bob"), rigid("r", "c5"))
    seen = on_ladder(Place(*jobs), journal, users={"bob": "advise"}).observe()
    plan = decide(seen, policy)
    assert plan == decide(seen, policy)
    assert {target.job_id for target in plan.targets} <= {"a"}
    assert {target.job_id for target in plan.advice} <= {"b", "w"}


def test_in_a_quiet_window_nobody_is_moved_and_afterwards_all_are(journal, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    import time

    time.tzset()
    place = Place(*TWO)
    ladder = on_ladder(place, journal, quiet=("Mon 08:00-09:00",))
    seen = ladder.observe()
    assert set(rungs(seen).values()) == {Rung.ADVISE}
    assert seen.jobs[0].why_rung == "quiet hours here: Mon 08:00-09:00"
    assert decide(seen).targets == ()
    place.now_s += 3600
    assert set(rungs(ladder.observe()).values()) == {Rung.ACT}
    monkeypatch.undo()
    time.tzset()


def shrink(generation=2):
    return Shrink(job_id="a", generation=generation, keep=("c1",), batch=64)


def test_a_pause_begins_nothing_more_not_even_what_was_just_decided(journal):
    place = Place(*TWO)
    ladder = on_ladder(place, journal)
    ladder.observe()
    place.word = Control.PAUSE
    assert [outcome.status for outcome in ladder.act([shrink()])] == [Status.REFUSED]
    assert place.acted == []
    seen = ladder.observe()
    assert (set(rungs(seen).values()), decide(seen).targets) == ({Rung.ADVISE}, ())
    place.word = Control.RUN
    assert sizes(decide(ladder.observe()).targets) == {"a": 4, "b": 4}


def record(journal, action, at_s):
    journal.record(
        Tick(
            tick=action.generation,
            now_s=at_s,
            took_s=0.0,
            view=view(*TWO, now_s=at_s),
            plan=Plan(),
            memory=Memory(),
            decisions=(Decision(job_id=action.job_id, reason="", action=action),),
        )
    )


def test_what_an_earlier_life_began_is_carried_on_whatever_was_said_since(journal):
    record(journal, shrink(), NOW_S - 60)
    place = Place(*TWO)
    ladder = on_ladder(place, journal)
    place.word = Control.PAUSE
    assert [outcome.status for outcome in ladder.act([shrink()])] == [Status.ACCEPTED]


def test_a_job_that_was_moved_often_enough_this_hour_stays_as_it_is(journal):
    record(journal, Start(job_id="b", generation=1, nodes=2, batch=64), NOW_S - 100)  # a start moves nobody
    record(journal, shrink(2), NOW_S - 3000)
    place = Place(*TWO)
    ladder = on_ladder(place, journal, max_moves_per_job_hour=2)
    assert rungs(ladder.observe()) == {"a": Rung.ACT, "b": Rung.ACT}
    ladder.act([Rebatch(job_id="a", generation=3, batch=128)])
    seen = ladder.observe()
    assert rungs(seen) == {"a": Rung.ADVISE, "b": Rung.ACT}
    assert seen.jobs[0].why_rung == "was moved 2 times within an hour, and the site allows 2"
    place.now_s += 601  # the first of them is an hour ago
    assert rungs(ladder.observe()) == {"a": Rung.ACT, "b": Rung.ACT}


def test_no_job_is_made_smaller_than_the_site_allows(journal):
    waiting = tuple(job(f"w{number}", user="u") for number in range(7))
    big, small = job("big", "c1 c2 c3 c4 c5 c6 c7"), job("small", "c8")
    bare = decide(on_ladder(Place(big, small, *waiting), journal).observe())
    assert sizes(bare.targets)["big"] < 3
    kept = decide(on_ladder(Place(big, small, *waiting), journal, never_below_nodes=3).observe())
    assert sizes(kept.targets)["big"] == 3
    assert sizes(kept.targets)["small"] == 1  # it asked for no more


def test_draining_gives_back_what_is_on_loan_and_moves_nobody_else(journal):
    lending = job("a", "c1 c2 c3", lent=(Lent("9", ("c3",)),), batch_host="c1", live=True)
    place = Place(lending, job("b", "c4"), job("w"))
    place.word = Control.DRAIN
    seen = on_ladder(place, journal).observe()
    plan = decide(seen)
    assert [(target.job_id, target.nodes, target.keep) for target in plan.targets] == [("a", 2, ("c1", "c2"))]
    decisions, _ = reconcile(seen, plan, (), Memory(), EngineSettings())
    actions = [one.action for one in decisions if one.action is not None]
    assert [(action.job_id, action.keep) for action in actions] == [("a", ("c1", "c2"))]
    assert isinstance(actions[0], Shrink)


def test_a_target_for_a_job_below_act_is_never_acted_on(journal):
    """Whatever a policy says."""
    seen = on_ladder(Place(*TWO), journal, users={"bob": "advise"}).observe()
    reasons(seen, Plan((Target(job_id="b", nodes=1), Target(job_id="a", nodes=1))))


def test_a_journal_from_before_there_was_advice_still_replays(journal, tmp_path):
    """Its plans lack the field, and its views the rungs."""
    import sqlite3

    import msgspec

    seen = view(*TWO, now_s=NOW_S)
    plan = policy_named("equal").decide(seen, np.random.default_rng([1, 1]))
    journal.record(Tick(tick=1, now_s=NOW_S, took_s=0.0, view=seen, plan=plan, memory=Memory(), decisions=()))
    old = msgspec.msgpack.encode({"targets": plan.targets}, order="deterministic")
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        db.execute("update ticks set plan = ?", (old,))
    db.close()
    assert replay(journal, policy_named) == (1, None)


@st.composite
def mixed_views(draw):
    """Eight nodes, jobs of all kinds and sizes on any rung."""
    free, jobs = [f"c{number}" for number in range(1, 9)], []
    for number in range(draw(st.integers(0, 6))):
        held = [free.pop() for _ in range(min(draw(st.integers(0, 4)), len(free)))]
        rung, one = draw(st.sampled_from(Rung)), f"j{number}"
        elastic = draw(st.booleans()) and rung is not Rung.OFF
        jobs.append(job(one, " ".join(held), rung=rung, elastic=elastic, can_grow=draw(st.booleans())))
    return view(*jobs, draining=draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(seen=mixed_views(), policy=st.sampled_from(["equal", "ones", "fifo", "psrpt"]))
def test_whoever_stands_where_no_move_is_of_a_job_below_act_and_no_job_is_in_both_lists(seen, policy):
    plan, rung = decide(seen, policy), rungs(seen)
    assert {rung[target.job_id] for target in plan.targets} <= {Rung.ACT}
    assert {rung[target.job_id] for target in plan.advice} <= {Rung.OBSERVE, Rung.ADVISE}
    decisions, _ = reconcile(seen, plan, (), Memory(), EngineSettings(grow_patience_ticks=1))
    actions = [one.action for one in decisions if one.action is not None]
    check_actions(seen, actions)
    assert {rung[action.job_id] for action in actions} <= {Rung.ACT}
    assert not seen.draining or actions == []  # nothing is on loan
