"""Schedules for every number of micro-batches in one book, which a training keeps between its generations."""

import msgspec
import pytest

from ones_slurm.pipeline import by_name, replay, verify
from ones_slurm.pipeline.book import Book, drift, with_times


def makespan(placement, plan):
    verdict = verify(placement, plan.schedule.micro_batches, replay(placement, plan.schedule.orders))
    assert not verdict.faults
    return verdict.makespan_us


def test_a_schedule_is_searched_once_and_found_in_the_file_by_the_next_generation(tmp_path, monkeypatch):
    path = tmp_path / "schedules.json"
    first = Book(by_name("M4").with_memory(5), path).plan(8, 2.0)
    assert first.makespan_us == makespan(by_name("M4").with_memory(5), first)
    monkeypatch.setattr("ones_slurm.pipeline.book.search", lambda *_: pytest.fail("nothing is to be searched"))
    assert Book(by_name("M4").with_memory(5), path).plan(8) == first


def test_the_table_has_what_steps_take_in_seconds(tmp_path):
    book = Book(by_name("V2"))
    book.plan(4, 1.0)
    book.add([2, 8], 1.0)
    assert [count for count, _ in book.steps_s()] == [2, 4, 8]
    seconds = [seconds for _, seconds in book.steps_s()]
    assert seconds == sorted(seconds)
    assert seconds[1] == pytest.approx(book.plan(4).makespan_us / 1e6)


def test_blocks_that_take_other_times_than_assumed_get_another_schedule_in_the_next_generation(tmp_path):
    path = tmp_path / "schedules.json"
    book = Book(by_name("V2"), path)
    book.plan(4, 1.0)
    times = {block.name: block.time_us for block in book.placement.blocks}
    near = {name: 1.2 * us for name, us in times.items()}
    book.measured(near)
    assert Book(by_name("V2"), path).placement == book.placement, "a fifth is the noise of a busy machine"
    slow = {**near, "F1": 5.0 * times["F1"]}
    book.measured(slow)
    again = Book(by_name("V2"), path)
    assert {block.name: block.time_us for block in again.placement.blocks} == pytest.approx(slow)
    assert again.steps_s() == (), "what was searched for other times is void"
    assert again.plan(4, 1.0).makespan_us > book.plan(4).makespan_us


def test_drift_is_that_of_the_block_furthest_off_and_unknown_blocks_are_passed_over():
    placement = with_times(by_name("V2"), {block.name: 10.0 for block in by_name("V2").blocks})
    assert drift(placement, {"F0": 9.0, "F1": 13.0, "strange": 900.0}) == pytest.approx(0.3)
    assert drift(placement, {}) == 0.0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"placement": 3}', b"\xff"])
def test_a_broken_file_is_no_file(tmp_path, content):
    path = tmp_path / "schedules.json"
    path.write_bytes(content)
    assert Book(by_name("V2"), path).plan(2, 1.0).schedule.micro_batches == 2


def test_a_file_of_another_pipeline_or_with_a_schedule_that_cannot_run_is_not_used(tmp_path):
    path = tmp_path / "schedules.json"
    Book(by_name("V2"), path).plan(2, 1.0)
    assert Book(by_name("V3"), path).steps_s() == ()
    table = msgspec.json.decode(path.read_bytes())
    table["plans"]["2"]["schedule"]["orders"][0].reverse()
    path.write_bytes(msgspec.json.encode(table))
    assert Book(by_name("V2"), path).steps_s() == ()
