"""What Slurm's commands are told, and what becomes of what they say."""

import json
import subprocess

import pytest
from scripted import Says, Scripted

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.client import Refused
from ones_slurm.slurm.command import ask, run_here
from ones_slurm.slurm.releases import Release


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", Unreachable),
        ("slurm_suspend error: Unexpected message received", Unreachable),
        ("slurm_update error: Message receive failure", Unreachable),
        ("squeue: error: Socket timed out on send/recv operation", Unreachable),
        ("sacct: error: Problem talking to the database: Connection refused", Unreachable),
        ("scontrol: fatal: Could not establish a configuration source", Unreachable),
        ("Protocol authentication error", Unreachable),
        ("Invalid user id for job 1", NotAllowed),
        ("Access/permission denied for job 1", NotAllowed),
        ("slurm_load_jobs error: Invalid job id specified", NotFound),
        ("Invalid node name specified for job 1", Refused),
        ("Job is no longer pending execution for job 1", Refused),
        ("Requested operation is presently disabled for job 1", Refused),
        ("something that no release has said so far", Refused),
    ],
)
def test_what_slurm_says_is_classified_and_kept(words, kind):
    with pytest.raises(kind) as caught:
        ask(Scripted({"scontrol": Says(words)}), "scontrol", "update", "JobId=1")
    assert type(caught.value) is kind
    assert words in caught.value.message


def test_a_machine_without_slurm_is_told_what_is_missing():
    with pytest.raises(Unreachable, match="there is no squeue-of-no-slurm on this machine") as caught:
        ask(run_here, "squeue-of-no-slurm")
    assert "slurm-client" in caught.value.hint


def test_a_command_that_hangs_is_given_up():
    with pytest.raises(Unreachable, match=r"sleep did not answer within 0\.1 s"):
        ask(run_here, "sleep", "60", timeout_s=0.1)


def test_commands_run_in_the_c_locale_with_dates_as_numbers():
    printed = ask(run_here, "sh", "-c", 'echo "$LC_ALL $SLURM_TIME_FORMAT"; printf "\\377"')
    assert printed == "C %s\n\N{REPLACEMENT CHARACTER}"


JOB = {
    "job_id": 7,
    "job_state": ["RUNNING"],
    "nodes": "c[1-3]",
    "batch_host": "c1",
    "tasks": 6,
    "cpus": 12,
    "priority": 1,
}
WAITING = JOB | {"job_state": ["PENDING"], "nodes": "", "tres_req_str": "cpu=12,node=3", "node_count": 3}


def slurm(*jobs, **answers):
    """Slurm 24.11 that shows job 7 as the first of `jobs`, then as the next, the last for ever."""
    states = list(jobs)
    answers = {key.replace("_", " "): value for key, value in answers.items()}
    shown = lambda _: json.dumps({"jobs": [states.pop(0) if len(states) > 1 else states[0]]})  # noqa: E731
    scripted = Scripted({"--version": "slurm 24.11.5", "show job": shown, "scontrol update": ""} | answers)
    naps = []
    return CommandClient(scripted, sleep=naps.append), scripted, naps


def changes(scripted):
    return [command for command in scripted.asked if "show" not in command and "--version" not in command]


def test_a_shrink_names_the_nodes_to_keep_and_never_a_number():
    client, scripted, _ = slurm(JOB, JOB | {"nodes": "c[1,3]"})
    client.shrink("7", ["c1", "c3"])
    assert changes(scripted) == ["scontrol update JobId=7 NodeList=c[1,3]"]


def test_a_shrink_that_slurm_takes_and_does_not_carry_out_is_refused():
    client, _, _ = slurm(JOB)
    with pytest.raises(Refused, match=r"left it c\[1-3\]"):
        client.shrink("7", ["c1", "c3"])


def test_a_busy_slurm_is_asked_again_after_a_second():
    busy = Says("Job update not available right now, the DB index is being set, try again in a bit for job 7")
    client, scripted, naps = slurm(JOB, JOB | {"nodes": "c1"}, scontrol_update=[busy, busy, ""])
    client.shrink("7", ["c1"])
    assert naps == [1.0, 1.0]
    assert len(changes(scripted)) == 3


def test_a_slurm_that_stays_busy_refuses_in_the_end():
    busy = Says("the DB index is being set")
    client, _, _ = slurm(JOB, scontrol_update=[busy] * 5)
    with pytest.raises(Refused):
        client.shrink("7", ["c1"])


def test_a_new_size_is_given_as_nodes_tasks_and_cpus_at_once():
    client, scripted, _ = slurm(WAITING, WAITING | {"tres_req_str": "cpu=20,node=5"})
    client.size_pending("7", 5)
    assert changes(scripted) == ["scontrol update JobId=7 NumNodes=5-5 NumTasks=10 NumCPUs=20"]


def test_a_size_that_is_refused_is_set_back():
    client, scripted, _ = slurm(WAITING, scontrol_update=[Says("Requested node configuration is not available"), ""])
    with pytest.raises(Refused, match="configuration is not available"):
        client.size_pending("7", 50)
    assert changes(scripted)[-1] == "scontrol update JobId=7 NumNodes=3-3 NumTasks=6 NumCPUs=12"


def test_a_requeued_job_begins_in_a_later_second_than_the_one_in_which_it_was_taken_back():
    client, scripted, _ = slurm(WAITING | {"submit_time": 86_400})
    client.start_now("7")
    assert changes(scripted) == ["scontrol update JobId=7 StartTime=1970-01-02T00:00:01"]


def test_an_array_task_is_requeued_by_array_and_task():  # Lightning-AI/pytorch-lightning#15022
    task = JOB | {"job_id": 1236, "array_job_id": 1234, "array_task_id": 2}
    client, scripted, _ = slurm(task, scontrol_requeuehold="")
    client.requeue_hold("1234_2")
    assert changes(scripted) == ["scontrol requeuehold 1234_2"]


def test_a_running_task_is_found_behind_those_that_wait_together():
    """As 24.11 answers `scontrol --json show job 7_1`."""
    waiting = WAITING | {"job_id": 7, "array_job_id": 7, "array_task_id": None, "array_task_string": "2-5%1"}
    task = JOB | {"job_id": 8, "array_job_id": 7, "array_task_id": 1}
    scripted = Scripted({"--version": "slurm 24.11.5", "show job": json.dumps({"jobs": [waiting, task]})})
    client = CommandClient(scripted)
    assert (client.job("7_1").state, client.job("7_1").job_id) == (JobState.RUNNING, "7_1")
    assert (client.job("7_4").state, client.job("7_4").job_id) == (JobState.PENDING, "7_4")


@pytest.mark.parametrize("job_id", ["", "--help", "12 13", "7_[1-2]", "11+0", "7.batch"])
def test_only_job_ids_reach_slurm(job_id):
    client, scripted, _ = slurm(JOB)
    with pytest.raises(NotFound):
        client.requeue_hold(job_id)
    assert scripted.asked == []


def test_accounting_asks_in_utc_for_what_is_wanted():
    client, scripted, _ = slurm(JOB, sacct="")
    assert client.accounting(since_s=0, until_s=86400, job_ids=["7", "8"], user="user1") == []
    command = scripted.asked[-1]
    assert "--starttime=1970-01-01T00:00:00 --endtime=1970-01-02T00:00:00 --jobs=7,8 --user=user1" in command
    assert "--duplicates --allocations" in command


@pytest.mark.parametrize(
    ("printed", "release"),
    [
        ("slurm-wlm 22.05.8\n", (22, 5, 8)),
        ("slurm 26.05.5", (26, 5, 5)),
        ("23.11.0-0rc1", (23, 11, 0)),
        ("25.5", (25, 5, 0)),
    ],
)
def test_releases(printed, release):
    assert Release.parse(printed) == Release(*release)


def test_what_is_no_release():
    with pytest.raises(Unreachable):
        Release.parse("command not found")


def test_a_runner_that_cannot_start_a_command():
    with pytest.raises(Unreachable, match="cannot be run"):
        ask(Scripted({"squeue": PermissionError("no")}), "squeue")
    with pytest.raises(Unreachable, match="did not answer"):
        ask(Scripted({"squeue": subprocess.TimeoutExpired("squeue", 60)}), "squeue")
