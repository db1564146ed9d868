"""Raw output of three releases of Slurm; what is expected was read off by hand."""

import json
from pathlib import Path

import pytest
from scripted import Scripted

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import NotFound, Unreachable
from ones_slurm.slurm.accounting import read_rows, submitted_comment
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.job_json import read_job, read_queue
from ones_slurm.slurm.node_text import read_nodes
from ones_slurm.slurm.releases import Release
from ones_slurm.slurm.times import date_s

SAMPLES = Path(__file__).with_name("samples")
RELEASES = ("22.05.8", "24.11.5", "26.05.5")


def text(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def slurm(release: str) -> CommandClient:
    """A client whose Slurm always looks as in the samples."""
    answers = {
        "--version": f"slurm-wlm {release}",
        "squeue --json": text(f"squeue-{release}.json"),
        "show node": text(f"nodes-{release}.txt"),
    }
    if release != "22.05.8":
        answers["scontrol --json show job"] = text(f"scontrol-job-{release}.json")
    return CommandClient(Scripted(answers))


# job: state, nodes held, batch host, nodes asked for, GPUs a node, time limit
QUEUES = {
    "22.05.8": {
        "5": (JobState.ENDING, ("c3", "c4"), "c3", 2, 4, 540),
        "13_1": (JobState.PENDING, (), "", 2, 2, None),
        "14": (JobState.RUNNING, ("c1", "c2"), "c1", 2, 1, 600),
    },
    "24.11.5": {
        "9": (JobState.RUNNING, ("c1", "c2"), "c1", 2, 2, 600),
        "10_1": (JobState.RUNNING, ("c3",), "c3", 1, 0, 300),
        "10_2": (JobState.PENDING, (), "", 1, 0, 300),
        "11": (JobState.PENDING, (), "", 2, 0, None),
        "12": (JobState.PENDING, (), "", 2, 0, 300),
    },
    "26.05.5": {
        "12": (JobState.PENDING, (), "", 2, 0, None),
        "13_1": (JobState.RUNNING, ("c1",), "c1", 1, 0, 300),
        "13_2": (JobState.PENDING, (), "", 1, 0, 300),
    },
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_snapshot_holds_the_unfinished_jobs_and_the_nodes(release):
    snapshot = slurm(release).snapshot()
    seen = {
        job.job_id: (job.state, job.nodes, job.batch_host, job.asked_nodes, job.gpus_per_node, job.time_limit_s)
        for job in snapshot.jobs
    }
    assert seen == QUEUES[release]
    assert [(node.name, node.gpus, node.gpu_type, node.usable) for node in snapshot.nodes] == [
        (f"c{number}", 4, "v100", True) for number in range(1, 5)
    ]
    assert {(node.cpus, node.memory_mib, node.partitions) for node in snapshot.nodes} == {(4, 2000, ("v100", "other"))}


def test_the_smaller_fields():
    job = next(job for job in slurm("24.11.5").snapshot().jobs if job.job_id == "9")
    assert (job.user, job.account, job.partition, job.qos, job.name) == ("user1", "acc", "v100", "normal", "base.sh")
    assert (job.comment, job.slurm_states, job.reason) == ("el:min=1,max=4", ("RUNNING",), "")
    assert (job.tasks, job.cpus, job.priority, job.batch, job.requeueable) == (3, 3, 1, True, True)
    assert (job.submit_s, job.start_s, job.end_s) == (1796050148, 1796050149, 1796050749)
    assert not job.held
    assert not job.het
    waiting = next(job for job in slurm("24.11.5").snapshot().jobs if job.job_id == "12")
    assert (waiting.het, waiting.reason, waiting.start_s, waiting.end_s) == (True, "Resources", None, None)


def test_a_single_job_is_asked_for_in_json_where_scontrol_has_it():
    job = slurm("24.11.5").job("8")
    assert (job.state, job.restarts, job.gpus_per_node, job.nodes) == (JobState.FAILED, 2, 2, ())
    with pytest.raises(NotFound):
        slurm("24.11.5").job("9")


@pytest.mark.parametrize("nodes", ["c[1-2]", {"count": 2, "list": "c[1-2]", "allocation": []}])
def test_the_nodes_of_an_allocation_are_read_in_either_shape(nodes):  # clemsonciti/jobperf#4
    raw = {"job_id": 7, "job_state": "COMPLETING", "nodes": "", "job_resources": {"nodes": nodes}}
    assert read_job(read_queue(json.dumps({"jobs": [raw]}))[0]).nodes == ("c1", "c2")


@pytest.mark.parametrize("limit", [None, {"set": False, "infinite": True, "number": 0}, 0])
def test_no_time_limit_in_either_shape(limit):
    raw = {"job_id": 7, "job_state": "RUNNING", "time_limit": limit, "start_time": 100, "end_time": 31536100}
    job = read_job(read_queue(json.dumps({"jobs": [raw]}))[0])
    assert (job.time_limit_s, job.end_s) == (None, None)


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ({"tres_per_node": "gres:gpu:2"}, 2),
        ({"tres_per_node": "gres/gpu:v100:2"}, 2),
        ({"tres_per_job": "gres:gpu:6", "node_count": 2}, 3),
        ({"tres_per_task": "gres:gpu:1", "tres_req_str": "cpu=8,node=2,gres/gpu=8"}, 4),
        # Requeued at another size by 22.05: the GPUs in all are still the old ones.
        ({"tres_per_node": "gres:gpu:2", "tres_req_str": "cpu=6,node=6,gres/gpu=8"}, 2),
        ({"tres_req_str": "cpu=6,node=6"}, 0),
    ],
)
def test_gpus_of_each_node_however_they_were_asked_for(asked, gpus):
    raw = {"job_id": 7, "job_state": "PENDING"} | asked
    assert read_job(read_queue(json.dumps({"jobs": [raw]}))[0]).gpus_per_node == gpus


def test_what_a_running_job_has_outweighs_what_it_asked_for():
    """After a shrink from four nodes to two, of a job that asked for whole nodes and not for GPUs."""
    raw = {
        "job_id": 7,
        "job_state": "RUNNING",
        "nodes": "c[1-2]",
        "tres_req_str": "cpu=16,node=4",
        "tres_alloc_str": "cpu=8,node=2,gres/gpu=8",
    }
    job = read_job(read_queue(json.dumps({"jobs": [raw]}))[0])
    assert (job.asked_nodes, job.gpus_per_node) == (2, 4)


@pytest.mark.parametrize(
    ("priority", "reason"), [(0, "JobHeldUser"), (0, "job requeued in held state"), (5, "JobHeldAdmin")]
)
def test_held_jobs(priority, reason):
    raw = {"job_id": 7, "job_state": "PENDING", "priority": priority, "state_reason": reason}
    assert read_job(read_queue(json.dumps({"jobs": [raw]}))[0]).held


def test_the_size_of_a_resized_pending_job_on_22_05_is_in_the_requested_resources():
    raw = {"job_id": 7, "job_state": "PENDING", "node_count": 2, "tres_req_str": "cpu=3,node=3"}
    assert read_job(read_queue(json.dumps({"jobs": [raw]}))[0]).asked_nodes == 3


def test_an_empty_queue_with_an_error_in_it_is_no_empty_queue():
    """As 22.05 answers, with exit code 0, when slurmctld is down."""
    down = {"errors": [{"description": "Failed while looking for jobs", "error": "Unspecified error"}], "jobs": []}
    with pytest.raises(Unreachable, match="looking for jobs"):
        read_queue(json.dumps(down))
    with pytest.raises(Unreachable):
        read_queue(text("squeue-22.05.8.json")[:-200])


def rows(release: str):
    columns = text(f"sacct-{release}.psv").replace("|", "#mark#")
    return read_rows(columns, "#mark#", Release.parse(release))


def at(clock: str) -> float | None:
    return date_s(f"2026-11-30T14:{clock}")


def test_accounting_of_a_job_that_was_shrunk_twice():
    """On 22.05 the row after the first shrink begins at the original start: told as it stands."""
    found = [row for row in rows("22.05.8") if row.job_id == "15"]
    assert [(row.state, row.submit_s, row.start_s, row.end_s) for row in found] == [
        ("RESIZING", at("37:59"), at("38:00"), at("38:05")),
        ("RESIZING", at("38:05"), at("38:00"), at("38:10")),
        ("CANCELLED", at("38:10"), at("38:10"), at("38:14")),
    ]
    assert [(row.nodes, row.nnodes, row.gpus, row.cancelled_by) for row in found] == [
        (("c1", "c2", "c3", "c4"), 4, 4, None),
        (("c1", "c2", "c3"), 3, 3, None),
        (("c1",), 1, 1, "5"),
    ]


def test_accounting_of_jobs_that_never_started_or_still_run():
    waiting = next(row for row in rows("22.05.8") if row.job_id == "13_[1-3%1]")
    assert (waiting.start_s, waiting.nodes, waiting.gpus, waiting.time_limit_s) == (None, (), None, None)
    running = next(row for row in rows("24.11.5") if row.job_id == "10_1")
    assert (running.raw_id, running.state, running.end_s, running.restarts) == ("14", "RUNNING", None, 0)
    part = next(row for row in rows("22.05.8") if row.job_id == "11+1")
    assert part.raw_id == "12"


def test_accounting_of_a_donor_that_was_merged_away():
    for release, job in (("22.05.8", "9"), ("24.11.5", "7")):
        row = next(row for row in rows(release) if row.job_id == job)
        assert (row.state, row.nnodes, row.nodes, row.gpus) == ("RESIZING", 0, (), None)
        assert row.start_s == row.end_s


def test_accounting_shows_where_a_closed_row_was_overwritten():
    row = rows("26.05.5")[0]
    assert (row.job_id, row.nnodes, row.tres_nodes, row.gpus) == ("1", 4, 3, 6)


def test_the_comment_is_taken_from_the_submit_line_where_accounting_keeps_none():
    row = next(row for row in rows("24.11.5") if row.job_id == "9")
    assert row.comment == "el:min=1,max=4"
    assert submitted_comment("sbatch --comment 'a b' run.sh") == "a b"
    assert submitted_comment('sbatch --comment="ones:nodes=1-2" run.sh') == "ones:nodes=1-2"
    assert submitted_comment("sbatch run.sh --quiet 'unbalanced") == ""


def test_users_cannot_write_rows_into_accounting():
    """A submit line with line breaks that looks like a row of somebody else's job stays text."""
    line = text("sacct-22.05.8.psv").splitlines()[0]
    forged = "sbatch --wrap 'x\n" + line.replace("user1", "victim") + "\n'"
    fields = line.split("|")
    fields[-2] = forged
    found = read_rows("#m#".join(fields) + "\n" + line.replace("|", "#m#"), "#m#", Release(22, 5, 8))
    assert [row.user for row in found] == ["user1", "user1"]


def test_users_cannot_write_fields_into_a_node_line():
    node = read_nodes("NodeName=n1 CPUTot=4 Gres=gpu:2 State=IDLE Partitions=a Reason=see State=DOWN Gres=gpu:9")[0]
    assert (node.states, node.gpus) == (("IDLE",), 2)
