"""The search finds the known optima, proves them, and never gives less than a preset."""

from __future__ import annotations

import random
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import placements

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline import Block, Placement, Times, by_name, presets, replay, search, verify
from ones_slurm.pipeline.period import shorten, steady_state, steady_state_of_several
from ones_slurm.pipeline.solver import Clock


@pytest.mark.parametrize(
    ("name", "memory", "period"),
    [
        *[("V4", m, p) for m, p in ((1, 16), (2, 8), (3, 8), (4, 4))],
        *[("X4", m, p) for m, p in ((2, 13), (3, 9), (4, 8))],
        *[("K4", m, p) for m, p in ((2, 8), (3, 6))],
        *[("M4", m, p) for m, p in ((1, 18), (2, 10), (3, 10), (4, 7), (5, 6))],
        *[("NN4", m, p) for m, p in ((1, 20), (2, 12), (4, 9), (5, 9), (6, 8))],
        *[("V8", 8, 4), ("X8", 8, 8), ("K8", 8, 6), ("M8", 12, 6), ("NN8", 12, 8)],
    ],
)
def test_the_shortest_period_is_found_and_proven(name: str, memory: int, period: int) -> None:
    steady = steady_state(by_name(name).with_memory(memory), Clock(60))
    assert steady is not None
    assert (steady.period_us, steady.proven) == (period, True)


@pytest.mark.parametrize(
    ("name", "memory", "latency"),
    [("V4", 4, 16), ("X4", 4, 20), ("K4", 6, 16), ("M4", 6, 36), ("NN4", 6, 46), ("V8", 8, 32), ("M8", 12, 72)],
)
def test_warm_up_and_cool_down_are_as_short_as_can_be(name: str, memory: int, latency: int) -> None:
    steady = steady_state(by_name(name).with_memory(memory), Clock(20))
    assert steady is not None
    assert shorten(steady, Clock(20)).repetend.latency == latency


def test_inference_reaches_the_work_bound() -> None:
    periods = {name: steady_state(by_name(name, inference=True), Clock(20)) for name in ("V4", "K4", "NN4")}
    assert {name: steady.period_us for name, steady in periods.items() if steady} == {"V4": 1, "K4": 2, "NN4": 3}


def test_several_micro_batches_in_a_repetend_help_where_memory_binds() -> None:
    placement = by_name("V4").with_memory(3)
    single = steady_state(placement, Clock(20))
    assert single is not None
    three = steady_state_of_several(placement, single, 3, Clock(20))
    assert three is not None
    assert (three.period_us, three.proven) == (pytest.approx(16 / 3), True)


def test_times_in_microseconds_do_not_slow_the_search_down() -> None:
    rng = random.Random(3)
    placement = by_name("NN4", Times(10_000, 30_000, 10_000)).with_memory(6)
    blocks = tuple(msgspec.structs.replace(b, time_us=b.time_us * rng.uniform(0.8, 1.2)) for b in placement.blocks)
    placement = msgspec.structs.replace(placement, blocks=blocks, transfer_us=333.3)
    steady = steady_state(placement, Clock(20))
    assert steady is not None
    assert steady.period_us == pytest.approx(max(placement.work_us))
    assert steady.proven


# Those with 4 s are found at once and proved slowly or never; the others end by themselves, well within their budget.
@pytest.mark.parametrize(
    ("name", "memory", "micro_batches", "makespan", "budget_s"),
    [
        ("M4", 5, 16, 108, 4),
        ("NN4", 6, 8, 77, 4),
        ("V4", 3, 16, 96, 30),
        ("V4", 2, 8, 68, 30),
        ("M4", 6, 8, 60, 4),
        ("NN4", 6, 32, 269, 30),
        ("X4", 4, 16, 137, 10),
        ("X4", 3, 4, 42, 30),
        ("K4", 2, 8, 66, 30),
        ("K4", 6, 128, 772, 30),
        ("ZB4", 8, 12, 39, 30),
    ],
)
def test_known_makespans_are_reached(
    name: str, memory: int, micro_batches: int, makespan: float, budget_s: float
) -> None:
    assert search(by_name(name).with_memory(memory), micro_batches, budget_s).verdict.makespan_us <= makespan


@pytest.mark.parametrize(
    ("name", "preset", "micro_batches", "makespan"),
    [
        ("V4", "1f1b", 16, 76),
        ("V4", "gpipe", 16, 76),
        ("V4x2", "interleaved", 8, 76),
        ("M4", "1f1b+", 16, 138),
        ("M8", "1f1b+", 8, 90),
        ("ZB4", "zb-h1", 12, 39),
    ],
)
def test_presets_are_worth_what_they_are_known_for(name: str, preset: str, micro_batches: int, makespan: float) -> None:
    schedule = next(s for s in presets(by_name(name), micro_batches) if s.source == preset)
    verdict = verify(schedule.placement, micro_batches, replay(schedule.placement, schedule.orders))
    assert (verdict.makespan_us, verdict.faults) == (makespan, ())


def test_chimera_beats_its_published_layout_and_uses_its_memory() -> None:
    schedule = next(s for s in presets(by_name("X4"), 16) if s.source == "chimera")
    verdict = verify(schedule.placement, 16, replay(schedule.placement, schedule.orders))
    assert verdict.makespan_us <= 162
    assert verdict.peak_memory == (3, 4, 4, 3)


@settings(max_examples=25, deadline=None)
@given(placements(), st.integers(1, 8))
def test_never_worse_than_a_preset_that_fits(placement: Placement, micro_batches: int) -> None:
    answer = search(placement, micro_batches, 0.4)
    verdict = verify(placement, micro_batches, replay(placement, answer.schedule.orders))
    assert verdict.faults == ()
    assert verdict == answer.verdict
    for preset in presets(placement, micro_batches):
        other = verify(placement, micro_batches, replay(placement, preset.orders))
        assert other.faults or verdict.makespan_us <= other.makespan_us
    assert answer.makespan_bound_us <= verdict.makespan_us * (1 + 1e-9)


def test_memory_that_nothing_meets_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(UsageError, match="needs 1 memory on device") as refused:
        search(by_name("V4").with_memory([0.5, 1, 1, 1]), 8, 5)
    assert refused.value.hint == "the smallest limits that work: 1, 1, 1, 1"
    assert search(by_name("V4").with_memory(1), 8, 5).verdict.peak_memory == (1, 1, 1, 1)


def test_an_order_that_saves_memory_is_found_where_the_written_one_does_not_fit() -> None:
    def pair(name: str) -> tuple[Block, Block]:
        take = Block(name=name, time_us=1, devices=(0,), memory=1)
        give = Block(name=f"{name}'", time_us=1, devices=(0,), memory=-1, after=(name,), kind="backward", of=name)
        return take, give

    (a, b), (c, d) = pair("a"), pair("c")
    placement = Placement(name="two", devices=1, blocks=(a, c, b, d), memory=(1,))
    assert search(placement, 3, 5).verdict.makespan_us == 12


def test_a_tiny_budget_still_answers() -> None:
    answer = search(by_name("X8").with_memory(5), 64, 0.05)
    assert answer.verdict.faults == ()
    assert answer.stopped


def test_somebody_who_stops_the_search_gets_the_best_so_far() -> None:
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    began = time.monotonic()
    answer = search(by_name("X8").with_memory(5), 64, 300, stop)
    assert time.monotonic() - began < 15
    assert answer.stopped
    assert answer.verdict.faults == ()


def test_a_thousand_devices_get_an_honest_answer() -> None:
    answer = search(by_name("V1000"), 4, 3)
    assert answer.verdict.faults == ()
    assert answer.makespan_bound_us <= answer.verdict.makespan_us


def test_the_same_question_gets_the_same_answer() -> None:
    first, second = (search(by_name("NN4").with_memory(6), 16, 5) for _ in range(2))
    assert (first.period_us, first.verdict.makespan_us) == (second.period_us, second.verdict.makespan_us)


def test_no_micro_batches_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="0 micro-batches"):
        search(by_name("V2"), 0)


def test_the_bound_of_one_deep_micro_batch_is_its_critical_path() -> None:
    answer = search(by_name("M1000"), 1, 1)
    assert answer.proven
    assert answer.verdict.makespan_us == by_name("M1000").critical_path_us == 4002
