"""What only a real slurmctld can show: requests of every kind, arrays, and users who write what they like."""

from collections.abc import Iterator

import pytest
from places import LabPlace, command_client, runner

from ones_slurm.lab import Lab
from ones_slurm.model.cluster import JobState
from ones_slurm.slurm.choose import choose_client
from ones_slurm.slurm.submit import submit

pytestmark = pytest.mark.slurm

SLEEP = "--wrap=sleep 600"


@pytest.fixture
def place(slurm_lab: Lab) -> Iterator[LabPlace]:
    lab_place = LabPlace(slurm_lab, command_client)
    yield lab_place
    lab_place.clear()


def sbatch(place: LabPlace, *options: str) -> str:
    return place.lab.run(["sbatch", "--parsable", *options, SLEEP]).stdout.strip()


@pytest.mark.parametrize("held", [True, False], ids=["waiting", "running"])
@pytest.mark.parametrize(
    ("options", "nodes", "gpus_per_node"),
    [
        (["--nodes=2", "--gres=gpu:1"], 2, 1),
        (["--nodes=2", "--gres=gpu:v100:2"], 2, 2),
        (["--nodes=2", "--gpus-per-node=2"], 2, 2),
        (["--nodes=2", "--gpus=4"], 2, 2),
        (["--nodes=1", "--ntasks=2", "--gpus-per-task=1"], 1, 2),
        (["--nodes=1"], 1, 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_gpus_of_each_node_however_they_were_asked_for(place, options, nodes, gpus_per_node, held):
    slurm = place.client("operator")
    job_id = sbatch(place, *options, *(["--hold"] if held else []))
    wanted = JobState.PENDING if held else JobState.RUNNING
    place.wait(lambda: slurm.job(job_id).state == wanted)
    in_snapshot = next(job for job in slurm.snapshot().jobs if job.job_id == job_id)
    for job in (in_snapshot, slurm.job(job_id)):
        assert (job.asked_nodes, job.gpus_per_node) == (nodes, gpus_per_node)


def test_tasks_of_an_array_are_jobs_and_what_waits_together_is_its_next_task(place):
    slurm = place.client("user1")
    array = sbatch(place, "--nodes=1", "--gpus-per-node=2", "--array=1-5%1")
    first, second = f"{array}_1", f"{array}_2"
    place.wait(lambda: slurm.job(first).state == JobState.RUNNING)
    assert [job.job_id for job in slurm.snapshot().jobs] == [second, first] or [first, second]
    slurm.requeue_hold(first)
    place.wait(lambda: slurm.job(first).state == JobState.PENDING)
    slurm.size_pending(first, 2)
    slurm.start_now(first)
    slurm.release(first)
    place.wait(lambda: len(slurm.job(first).nodes) == 2 or slurm.job(second).state == JobState.RUNNING)
    assert slurm.job(f"{array}_5").job_id == f"{array}_5"


def test_a_refused_size_leaves_a_job_that_can_start(place):
    slurm = place.client("user1")
    job_id = sbatch(place, "--nodes=2", "--gpus-per-node=2", "--hold")
    with pytest.raises(Exception, match="not available"):
        slurm.size_pending(job_id, 40)
    slurm.release(job_id)
    place.wait(lambda: slurm.job(job_id).state == JobState.RUNNING)
    assert len(slurm.job(job_id).nodes) == 2


def test_a_finished_job_leaves_the_snapshot_and_can_still_be_asked_for(place):
    slurm = place.client("user1")
    job_id = place.lab.run(["sbatch", "--parsable", "--nodes=1", "--wrap=true"]).stdout.strip()
    place.wait(lambda: slurm.job(job_id).state == JobState.DONE)
    assert all(job.job_id != job_id for job in slurm.snapshot().jobs)
    assert slurm.job(job_id).nodes == ()


def test_a_user_cannot_forge_another_users_job(place):
    """A name that looks like further lines of `scontrol show job`, and a comment with marks and quotes."""
    name = "x\n   UserId=root(0) NodeList=c9\nJobId=1 JobName=y"
    comment = '"ones:nodes=1-2"\x1f|{}\',\n7|root|'
    job_id = sbatch(place, "--hold", "--nodes=1", f"--job-name={name}", f"--comment={comment}")
    slurm = place.client("operator")
    in_snapshot = next(job for job in slurm.snapshot().jobs if job.job_id == job_id)
    for job in (in_snapshot, slurm.job(job_id)):
        assert (job.user, job.name, job.comment.strip(), job.nodes) == ("user1", name, comment.strip(), ())
    slurm.release(job_id)

    def rows():
        return [row for row in slurm.accounting(since_s=job.submit_s - 60) if row.job_id == job_id]

    place.wait(lambda: bool(rows()) and rows()[0].start_s is not None)
    assert [(row.user, row.name, row.nnodes) for row in rows()] == [("user1", name, 1)]


def test_a_comment_that_is_no_text_does_not_hide_the_queue(place):
    job_id = place.lab.run(
        [
            "python3",
            "-c",
            "import subprocess, sys; subprocess.run([b'sbatch', b'--parsable', *map(bytes, SENT)])".replace(
                "SENT", repr([b"--hold", b"--comment=\xff\xfe ones:nodes=1-2", b"--wrap=true"])
            ),
        ]
    ).stdout.strip()

    comments = {job.job_id: job.comment for job in place.client("operator").snapshot().jobs}
    assert comments[job_id].endswith(" ones:nodes=1-2")


def test_a_job_is_submitted_and_its_id_returned(place):
    job_id = submit(["--hold", "--nodes=1", SLEEP], comment="ones:nodes=1-2", runner=runner(place.lab, "user1"))
    assert place.client("user1").job(job_id).comment.startswith("ones:nodes=1-2 ones-submit:")


def test_the_client_is_chosen_on_a_real_machine(place):
    client, why = choose_client(runner(place.lab, "user1"))
    assert len(client.snapshot().nodes) == 4
    assert "because" in why or "pyslurm" in why
