"""What the fault harness itself promises: the same seed gives the same schedule, and its judges see what is wrong."""

from faults import MOST_LOST_S, Done, blamed
from schedule import KINDS, Fault, schedule
from stream import Loss, Step, Training, faults_of, losses


def steps(*runs):
    """One step a second; each run is (name, first step, last step), in batches of ten."""
    told, at_s = [], 0.0
    for run, first, last in runs:
        for number in range(first, last + 1):
            at_s += 1.0
            told.append(Step(at_s=at_s, run=run, step=number, samples=number * 10, batch=10))
    return told


def training(tmp_path, told, state="COMPLETED", total=100):
    lines = [f"{one.at_s} {one.run} {one.step} {one.samples} {one.batch}\n" for one in told]
    (tmp_path / "t.told").write_text("".join(lines))
    found = Training("t", "1", total, tmp_path)
    found.state = state
    return found


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another():
    assert schedule(7, 100) == schedule(7, 100)
    assert schedule(7, 100) != schedule(8, 100)


def test_a_shorter_schedule_is_the_beginning_of_a_longer_one():
    assert schedule(7, 40) == schedule(7, 100)[:40]


def test_a_schedule_has_each_kind_before_any_comes_again():
    assert {fault.kind for fault in schedule(7, len(KINDS))} == set(KINDS)


def test_a_training_that_goes_on_where_it_was_has_lost_nothing(tmp_path):
    told = steps(("a", 1, 4), ("b", 5, 10))
    assert losses("t", told) == []
    assert faults_of(training(tmp_path, told)) == []


def test_work_that_is_done_again_is_counted_in_steps_and_seconds(tmp_path):
    told = steps(("a", 1, 6), ("b", 4, 10))
    assert losses("t", told) == [Loss("t", broke_s=6.0, steps=3, work_s=3.0)]
    assert faults_of(training(tmp_path, told)) == []


def test_steps_that_are_left_out_are_seen(tmp_path):
    (wrong,) = faults_of(training(tmp_path, steps(("a", 1, 4), ("b", 6, 10)), state="RUNNING"))[:1]
    assert wrong == "t: steps 5 to 5 were left out"


def test_two_runs_at_the_same_time_are_seen(tmp_path):
    told = steps(("a", 1, 2), ("b", 3, 3), ("a", 3, 10))
    assert "t: b and a trained at the same time" in faults_of(training(tmp_path, told))


def test_a_training_that_stops_short_is_not_complete(tmp_path):
    assert faults_of(training(tmp_path, steps(("a", 1, 9)))) == ["t: is complete with 90 of 100 samples"]


def test_a_loss_is_put_down_to_what_was_done_to_that_training():
    def done(kind, victim, at_s):
        return Done(Fault(number=0, kind=kind, lasts_s=1.0, pause_s=1.0, victim=0.5), victim, at_s, at_s + 1.0)

    did = [done("kill worker", "t", 10.0), done("kill munged", "munged", 12.0)]
    assert blamed(Loss("t", 12.5, 1, MOST_LOST_S), did) == "kill worker"
    assert blamed(Loss("u", 12.5, 1, MOST_LOST_S), did) == "kill munged"
    assert blamed(Loss("u", 500.0, 1, MOST_LOST_S), did) == "no fault"
