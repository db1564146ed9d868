"""Histories of real jobs on Slurm 22.05.8, 24.11.5 and 26.05.5, each segment worked out by hand from the rows."""

from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from ones_slurm.report.dump import read_dump
from ones_slurm.report.figures import job_figures
from ones_slurm.report.segments import histories

DATA = Path(__file__).parent / "data"
LAST = {"22.05.8": "14:38:25", "24.11.5": "14:49:09", "26.05.5": "14:44:14"}

# release, job: (start, end, nodes, GPUs, wait, ended by, seconds that nodes stayed taken afterwards)
BY_HAND = {
    ("22.05.8", "1"): [  # shrunk twice
        ("14:32:39", "14:32:43", "c1 c2 c3 c4", 8, 0, "RESIZED", 0),
        ("14:32:43", "14:32:59", "c1 c3 c4", 6, 0, "RESIZED", 0),
        ("14:32:59", "14:33:29", "c1 c3", 4, 0, "CANCELLED", 0),
    ],
    ("22.05.8", "4"): [  # a merge that failed: a resize that changed no node
        ("14:33:59", "14:34:02", "c1 c2", 8, 0, "RESIZED", 0),
        ("14:34:02", "14:34:05", "c1 c2", 8, 0, "CANCELLED", 0),
    ],
    ("22.05.8", "8"): [  # grown by a merge, then shrunk: the last row repeats the first start
        ("14:34:49", "14:34:51", "c1 c2", 0, 1, "RESIZED", 0),
        ("14:34:51", "14:34:54", "c1 c2 c3 c4", 0, 0, "RESIZED", 0),
        ("14:34:54", "14:36:43", "c1", 0, 0, "CANCELLED", 0),
    ],
    ("22.05.8", "9"): [("14:34:51", "14:34:51", "", 0, 0, "MERGED", 0)],  # the donor of that merge
    ("22.05.8", "10"): [  # requeued with another size, twice
        ("14:35:14", "14:35:21", "c2 c3 c4 c5", 8, 1, "REQUEUED", 5),
        ("14:35:54", "14:35:55", "c2 c3", 4, 28, "REQUEUED", 5),
        ("14:36:43", "14:36:52", "c1 c2 c3 c4 c5 c6", 12, 43, "CANCELLED", 0),
    ],
    ("22.05.8", "11+0"): [  # one component, cancelled in the queue after its requeue
        ("14:37:04", "14:37:09", "c1 c2", 0, 5, "REQUEUED", 0),
        (None, "14:37:17", "", 0, 8, "CANCELLED", 0),
    ],
    ("22.05.8", "11+1"): [
        ("14:37:04", "14:37:09", "c3 c4", 0, 5, "REQUEUED", 0),
        (None, "14:37:17", "", 0, 8, "CANCELLED", 0),
    ],
    ("22.05.8", "13_[1-3%1]"): [(None, "14:37:52", "", 0, 35, "CANCELLED", 0)],  # no limit, never started
    ("22.05.8", "15"): [  # the second row repeats the first start
        ("14:38:00", "14:38:05", "c1 c2 c3 c4", 4, 1, "RESIZED", 0),
        ("14:38:05", "14:38:10", "c1 c2 c3", 3, 0, "RESIZED", 0),
        ("14:38:10", "14:38:14", "c1", 1, 0, "CANCELLED", 0),
    ],
    ("22.05.8", "16"): [
        ("14:38:00", "14:38:22", "c5 c6", 2, 1, "RESIZED", 0),
        ("14:38:22", "14:38:25", "c5", 1, 0, "CANCELLED", 0),
    ],
    ("24.11.5", "1"): [  # both rows after the first repeat its start
        ("14:46:12", "14:46:19", "c1 c2 c3 c4", 8, 0, "RESIZED", 0),
        ("14:46:19", "14:46:21", "c1 c2 c3", 6, 0, "RESIZED", 0),
        ("14:46:21", "14:46:30", "c1 c2", 4, 0, "CANCELLED", 0),
    ],
    ("24.11.5", "7"): [("14:47:20", "14:47:20", "", 0, 0, "MERGED", 0)],
    ("24.11.5", "8"): [
        ("14:47:31", "14:47:36", "c1 c2 c3 c4", 8, 0, "REQUEUED", 14),
        ("14:47:56", "14:48:02", "c1 c2", 4, 6, "REQUEUED", 14),
        ("14:48:20", "14:48:27", "c1 c2 c3 c4 c5", 10, 4, "CANCELLED", 0),
    ],
    ("24.11.5", "9"): [("14:49:09", "14:49:09", "c1 c2", 4, 1, "RUNNING", 0)],
    ("24.11.5", "10_1"): [("14:49:09", "14:49:09", "c3", 0, 1, "RUNNING", 0)],
    ("24.11.5", "11"): [(None, "14:49:09", "", 0, 1, "PENDING", 0)],
    ("26.05.5", "1"): [  # AllocTRES of the first row tells 6 GPUs on 3 nodes, the size after the resize
        ("14:40:50", "14:40:56", "c1 c2 c3 c4", 8, 1, "RESIZED", 0),
        ("14:40:56", "14:41:01", "c1 c2 c3", 6, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "2"): [  # a merge that failed: a resize that changed no node
        ("14:41:19", "14:41:36", "c1 c2", 8, 0, "RESIZED", 0),
        ("14:41:36", "14:41:38", "c1 c2", 8, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "3"): [("14:41:22", "14:41:29", "c3 c4", 8, 0, "CANCELLED", 0)],
    ("26.05.5", "4"): [("14:41:36", "14:41:38", "c3 c4", 8, 0, "CANCELLED", 0)],
    ("26.05.5", "5"): [  # grown by a merge, without GPUs
        ("14:41:47", "14:41:51", "c1 c2", 0, 0, "RESIZED", 0),
        ("14:41:51", "14:41:54", "c1 c2 c3 c4", 0, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "6"): [("14:41:51", "14:41:51", "", 0, 0, "MERGED", 0)],  # its donor
    ("26.05.5", "7"): [  # another merge that failed
        ("14:42:02", "14:42:07", "c1 c2", 2, 0, "RESIZED", 0),
        ("14:42:07", "14:42:10", "c1 c2", 2, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "8"): [  # and its donor, which kept its nodes
        ("14:42:06", "14:42:07", "c3 c4", 2, 0, "RESIZED", 0),
        ("14:42:07", "14:42:10", "c3 c4", 2, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "9"): [
        ("14:42:19", "14:42:24", "c1 c2 c3 c4", 8, 0, "REQUEUED", 14),
        ("14:42:44", "14:42:50", "c1 c2", 4, 6, "REQUEUED", 14),
        ("14:43:08", "14:43:14", "c1 c2 c3 c4 c5", 10, 4, "CANCELLED", 0),
    ],
    ("26.05.5", "10"): [
        ("14:43:55", "14:44:00", "c1 c2 c3 c4 c5", 5, 0, "RESIZED", 0),
        ("14:44:00", "14:44:01", "c1 c2 c3 c4", 4, 0, "RESIZED", 0),
        ("14:44:01", "14:44:02", "c1 c2 c3", 3, 0, "RESIZED", 0),
        ("14:44:02", "14:44:14", "c1", 1, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "11"): [
        ("14:44:03", "14:44:08", "c2 c3 c4 c5", 4, 0, "RESIZED", 0),
        ("14:44:08", "14:44:10", "c2 c3 c4", 3, 0, "RESIZED", 0),
        ("14:44:10", "14:44:12", "c2 c3", 2, 0, "RESIZED", 0),
        ("14:44:12", "14:44:14", "c2", 1, 0, "CANCELLED", 0),
    ],
    ("26.05.5", "13_1"): [("14:44:14", "14:44:14", "c1", 0, 0, "RUNNING", 0)],
    ("26.05.5", "12"): [(None, "14:44:14", "", 0, 0, "PENDING", 0)],
}


def clock(seconds):
    return None if seconds is None else datetime.fromtimestamp(seconds).strftime("%H:%M:%S")


def history(release, job_id):
    dump = read_dump(DATA / f"sacct-{release}.psv")
    assert (clock(dump.last_s), dump.unreadable) == (LAST[release], 0)
    return next(job for job in histories(dump.rows, now_s=dump.last_s) if job.job_id == job_id)


@pytest.mark.parametrize(("release", "job_id"), BY_HAND)
def test_segments_are_those_worked_out_by_hand(release, job_id):
    found = [
        (
            clock(segment.start_s),
            clock(segment.end_s),
            " ".join(segment.nodes),
            segment.gpus,
            segment.wait_s,
            segment.ended_by,
            segment.restart_cost_s,
        )
        for segment in history(release, job_id).segments
    ]
    assert found == BY_HAND[release, job_id]


def test_no_job_of_the_newest_release_is_left_out():
    dump = read_dump(DATA / "sacct-26.05.5.psv")
    assert {("26.05.5", row.job_id) for row in dump.rows} == {key for key in BY_HAND if key[0] == "26.05.5"}


@pytest.mark.parametrize(
    ("release", "jobs"), [("22.05.8", {"10", "13_[1-3%1]", "15"}), ("24.11.5", {"1", "8"}), ("26.05.5", {"1", "9"})]
)
def test_json_of_each_release_says_what_its_text_says(release, jobs):
    text, told = read_dump(DATA / f"sacct-{release}.psv"), read_dump(DATA / f"sacct-{release}.json")
    assert {row.job_id for row in told.rows} == jobs
    of_text = [row for row in text.rows if row.job_id in jobs]
    assert said(told.rows) == said(of_text)


def said(rows):
    """Text tells local times and the uid of who cancelled a job, JSON Unix time and the user."""
    zero_s = int(min(row.submit_s for row in rows))
    moments = ("submit_s", "start_s", "end_s", "wait_since_s")
    found = [segment for job in histories(rows, now_s=0) for segment in job.segments]
    since = [{name: getattr(segment, name) for name in moments} for segment in found]
    return [
        msgspec.structs.replace(
            segment, ended_how="", **{name: None if at is None else at - zero_s for name, at in times.items()}
        )
        for segment, times in zip(found, since, strict=True)
    ]


def test_only_the_row_with_the_tres_of_another_size_is_warned_of():
    warned = {}
    for release in LAST:
        dump = read_dump(DATA / f"sacct-{release}.psv")
        found = histories(dump.rows, now_s=dump.last_s)
        warned |= {(release, job.job_id): job.warnings for job in found if job.warnings}
    assert list(warned) == [("26.05.5", "1")]
    assert "held 4 nodes while its AllocTRES tells of 3" in warned["26.05.5", "1"][0]


def test_the_figures_of_a_requeued_job():
    figures = job_figures(history("24.11.5", "8"))
    assert figures.gpu_s == 8 * 5 + 4 * 6 + 10 * 7
    assert figures.restart_gpu_s == 8 * 14 + 4 * 14
    assert (figures.completion_s, figures.wait_s, figures.moves) == (56, 10, 2)
