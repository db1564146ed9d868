"""How rows of accounting become segments: one rule a test."""

import random

import pytest
from accounting_rows import row
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.report.segments import KNOWN, JobHistory, histories

C4 = ("c1", "c2", "c3", "c4")
NOW_S = 1_000


def only(*rows, **options) -> JobHistory:
    (job,) = histories(rows, now_s=NOW_S, **options)
    return job


def spans(job: JobHistory) -> list[tuple[int | None, int, int]]:
    return [(segment.start_s, segment.end_s, segment.gpus) for segment in job.segments]


def test_a_job_that_was_never_moved_is_one_segment():
    job = only(row(submit=100, eligible=110, start=130, end=160, nodes=C4, gpus=8))
    assert spans(job) == [(130, 160, 8)]
    assert (job.segments[0].wait_s, job.segments[0].gpu_s, job.segments[0].ended_by) == (20, 240, "COMPLETED")
    assert job.warnings == ()


def test_a_row_that_repeats_the_first_start_begins_where_the_resize_was():
    job = only(
        row(state="RESIZING", submit=100, start=100, end=150, nodes=C4, gpus=8),
        row(submit=150, start=100, end=170, nodes=C4[:2], gpus=4),
    )
    assert spans(job) == [(100, 150, 8), (150, 170, 4)]
    assert [segment.wait_s for segment in job.segments] == [0, 0]
    assert [segment.ended_by for segment in job.segments] == ["RESIZED", "COMPLETED"]
    assert job.warnings == ()


def test_the_tres_of_another_size_are_not_believed():
    job = only(row(state="RESIZING", submit=0, start=0, end=10, nodes=C4, gpus=6, tres_nodes=3))
    assert job.segments[0].gpus == 8
    assert "AllocTRES tells of 3" in job.warnings[0]


def test_nodes_stay_taken_between_a_requeue_and_the_next_submit():
    job = only(
        row(state="REQUEUED", submit=0, start=0, end=10, nodes=C4, gpus=8),
        row(submit=15, eligible=40, start=50, end=60, nodes=C4[:1], gpus=2),
    )
    first, second = job.segments
    assert (first.restart_cost_s, first.restart_gpu_s) == (5, 40)
    assert second.wait_s == 35, "the hold and the delay before it is eligible again are waited through as well"


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED"])
def test_a_job_goes_on_after_a_lost_node_or_a_preemption(state):
    job = only(
        row(state=state, submit=0, start=0, end=10, nodes=C4, gpus=4),
        row(submit=12, start=20, end=30, nodes=C4[:2], gpus=2),
    )
    assert spans(job) == [(0, 10, 4), (20, 30, 2)]
    assert job.segments[0].restart_cost_s == 2
    assert [segment.ended_by for segment in job.segments] == [state, "COMPLETED"]


def test_a_donor_that_merged_into_another_job_holds_nothing_and_is_over():
    job = only(row(state="RESIZING", submit=50, start=50, end=50, nodes=()))
    assert spans(job) == [(50, 50, 0)]
    assert (job.segments[0].ended_by, job.segments[0].open) == ("MERGED", False)


def test_no_nodes_are_no_gpus_whatever_the_tres():
    assert spans(only(row(state="RESIZING", submit=50, start=50, end=70, gpus=8))) == [(50, 70, 0)]


def test_a_running_job_is_counted_until_now():
    job = only(row(state="RUNNING", submit=900, start=900, nodes=C4, gpus=4))
    assert spans(job) == [(900, NOW_S, 4)]
    assert job.segments[0].open


def test_a_pending_job_holds_nothing_and_waits_until_now():
    job = only(row(state="PENDING", submit=900, eligible=950))
    assert spans(job) == [(None, NOW_S, 0)]
    assert (job.segments[0].wait_s, job.segments[0].open) == (50, True)


def test_a_job_cancelled_in_the_queue_waited_until_then():
    job = only(row(state="CANCELLED", submit=100, end=140, cancelled_by="5"))
    assert spans(job) == [(None, 140, 0)]
    assert (job.segments[0].wait_s, job.segments[0].ended_how) == (40, "by 5")


def test_a_start_that_lies_ahead_is_no_wait_yet():
    job = only(row(state="PENDING", submit=900, eligible=5_000))
    assert job.segments[0].wait_s == 0


def test_gpus_that_slurm_does_not_count_come_from_the_site_file():
    job = only(row(submit=0, start=0, end=10, nodes=C4, gpus=None), gpus_per_node={"v100": 4})
    assert job.segments[0].gpus == 16


def test_death_by_signal_is_told_whatever_the_state():
    job = only(row(state="OUT_OF_MEMORY", submit=0, start=0, end=10, nodes=C4, signal=9))
    assert (job.segments[0].ended_by, job.segments[0].ended_how) == ("OUT_OF_MEMORY", "signal 9")
    job = only(row(state="FAILED", submit=0, start=0, end=10, nodes=C4, exit_status=7))
    assert job.segments[0].ended_how == "exit 7"


def test_of_two_readings_of_a_row_the_one_that_knows_its_end_counts():
    early = row(state="RUNNING", submit=0, start=0, nodes=C4, gpus=4)
    late = row(submit=0, start=0, end=10, nodes=C4, gpus=4)
    job = only(late, early)
    assert spans(job) == [(0, 10, 4)]
    assert "is there twice" in job.warnings[0]
    assert only(late, late).warnings == ()


def test_a_row_that_was_never_closed_ends_where_the_next_begins():
    job = only(
        row(state="RUNNING", submit=0, start=0, nodes=C4, gpus=4),
        row(submit=30, start=30, end=40, nodes=C4, gpus=4),
    )
    assert spans(job) == [(0, 30, 4), (30, 40, 4)]
    assert "never closed" in job.warnings[0]


def test_a_row_that_is_pending_for_ever_though_it_started_is_not_counted():
    job = only(
        row(state="CANCELLED", submit=43, start=43, end=56, nodes=C4, gpus=4),
        row(state="PENDING", submit=46, start=48, nodes=C4),
    )
    assert spans(job) == [(43, 56, 4)]
    assert "though it has a Start" in job.warnings[0]


def test_rows_that_overlap_are_cut():
    job = only(
        row(state="REQUEUED", submit=0, start=0, end=35, nodes=C4, gpus=4),
        row(submit=30, start=30, end=40, nodes=C4, gpus=4),
    )
    assert spans(job) == [(0, 30, 4), (30, 40, 4)]
    assert "overlaps" in job.warnings[0]


def test_earlier_rows_that_are_missing_are_named():
    job = only(row(submit=30, start=0, end=40, nodes=C4, gpus=4))
    assert spans(job) == [(30, 40, 4)]
    assert "earlier rows seem to be missing" in job.warnings[0]


def test_an_unknown_state_is_counted_and_named():
    job = only(row(state="TELEPORTED", submit=0, start=0, end=10, nodes=C4, gpus=4))
    assert spans(job) == [(0, 10, 4)]
    assert "TELEPORTED" in job.warnings[0]


def test_jobs_come_by_submission_and_task_number():
    rows = [row(job_id, submit=0) for job_id in ("12_10", "12_9", "9")] + [row("99", submit=-5)]
    assert [job.job_id for job in histories(rows, now_s=NOW_S)] == ["99", "9", "12_9", "12_10"]


def test_an_id_used_again_by_another_user_is_another_job():
    jobs = histories([row(submit=0), row(submit=500, user="user2")], now_s=NOW_S)
    assert [job.user for job in jobs] == ["user1", "user2"]


# A life as Slurm would write it down, beside the GPUs that it really held in each second.


@st.composite
def lives(draw, job_id: str):
    seconds = st.integers(1, 30)
    rows, occupied, cleaned = [], {}, {}
    per_node = draw(st.integers(0, 4))
    site_counts = draw(st.booleans())
    submit = draw(st.integers(1, 100))
    begin = started = submit + draw(st.integers(0, 30))
    nodes = tuple(f"c{number}" for number in range(draw(st.integers(1, 6))))
    while True:
        end = begin + draw(seconds)
        occupied |= dict.fromkeys(range(begin, end), len(nodes) * per_node)
        how = draw(st.sampled_from(["COMPLETED", "RUNNING", "RESIZING", "REQUEUED", "NODE_FAIL"]))
        next_nodes = tuple(f"c{number}" for number in range(draw(st.integers(1, 6))))
        overwritten = how == "RESIZING" and draw(st.booleans())
        accounted = next_nodes if overwritten else nodes
        rows.append(
            row(
                job_id,
                state=how,
                submit=submit,
                start=draw(st.sampled_from([started, begin])),
                end=None if how == "RUNNING" else end,
                nodes=nodes,
                gpus=None if site_counts else len(accounted) * per_node,
                tres_nodes=len(accounted),
                partition=f"p{per_node}" if site_counts else "v100",
            )
        )
        if how in {"COMPLETED", "RUNNING"}:
            return rows, occupied, cleaned, end
        nodes, submit = next_nodes, end
        if how == "RESIZING":
            begin = end
        else:
            submit = end + draw(st.integers(0, 20))
            cleaned |= dict.fromkeys(range(end, submit), len(rows[-1].nodes) * per_node)
            begin = started = submit + draw(st.integers(0, 30))


SITE = {f"p{gpus}": gpus for gpus in range(5)}


@given(lives("7"), st.randoms(use_true_random=False))
def test_gpu_seconds_are_the_integral_of_what_was_held(life, chance):
    rows, occupied, cleaned, end_s = life
    chance.shuffle(rows)
    (job,) = histories(rows, now_s=end_s, gpus_per_node=SITE)
    assert sum(segment.gpu_s for segment in job.segments) == sum(occupied.values())
    assert sum(segment.restart_gpu_s for segment in job.segments) == sum(cleaned.values())
    held_s = sum(segment.duration_s + segment.restart_cost_s for segment in job.segments)
    assert held_s == len(occupied.keys() | cleaned.keys())
    assert held_s + sum(segment.wait_s for segment in job.segments) == end_s - job.segments[0].submit_s


maybe_s = st.none() | st.integers(0, 200)
unruly_rows = st.lists(
    st.builds(
        row,
        st.sampled_from(["1", "1_2", "3+1"]),
        state=st.sampled_from([*sorted(KNOWN), "UNKNOWN"]),
        submit=st.integers(0, 200),
        start=maybe_s,
        end=maybe_s,
        eligible=maybe_s,
        nodes=st.sampled_from([(), ("c1",), C4]),
        gpus=st.none() | st.integers(0, 16),
        tres_nodes=st.none() | st.integers(0, 5),
    ),
    max_size=8,
)


@given(unruly_rows, st.integers(0, 250))
def test_whatever_the_rows_say_nothing_is_negative_counted_twice_or_fatal(rows, now_s):
    found = histories(rows, now_s=now_s)
    shuffled = list(rows)
    random.Random(0).shuffle(shuffled)
    assert histories(shuffled, now_s=now_s) == found
    for job in found:
        free_s = 0
        for segment in job.segments:
            assert min(segment.wait_s, segment.restart_cost_s, segment.gpus, segment.duration_s) >= 0
            begin_s = segment.end_s if segment.start_s is None else segment.start_s
            assert begin_s >= free_s
            free_s = segment.end_s + segment.restart_cost_s


def test_a_job_from_the_future_counts_nothing_and_is_named():
    job = only(row(state="RUNNING", submit=NOW_S + 500, start=NOW_S + 600, nodes=C4, gpus=8))
    assert (job.segments[0].gpu_s, [oddity.kind for oddity in job.oddities]) == (0, ["ahead of the clock"])
    assert not only(row(state="RUNNING", submit=NOW_S + 9, start=NOW_S + 9, nodes=C4, gpus=8)).oddities
