"""What every `SlurmClient` does, told once and tried on the fake, on a real slurmctld by commands, and by pyslurm."""

import importlib.util
import os
from collections.abc import Iterator

import pytest
from places import FakePlace, LabPlace, Place, RemoteClient, command_client

from ones_slurm.lab import Lab
from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable
from ones_slurm.slurm.client import JobRecord, Refused

WISH = "charge=x12 ones:nodes=1-4,batch=64-512"
# A folder with a pyslurm built for the lab's Slurm, where it is not installed.
PYSLURM_PATH = os.environ.get("ONES_TEST_PYSLURM", "")


@pytest.fixture(
    params=[
        "fake",
        pytest.param("commands", marks=pytest.mark.slurm),
        pytest.param("pyslurm", marks=pytest.mark.slurm),
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "fake":
        yield FakePlace()
        return
    if request.param == "pyslurm" and not PYSLURM_PATH and importlib.util.find_spec("pyslurm") is None:
        pytest.skip("pyslurm is not installed; ONES_TEST_PYSLURM may name a folder with one built for this Slurm")
    lab: Lab = request.getfixturevalue("slurm_lab")
    made = (lambda lab, user: RemoteClient(lab, user, PYSLURM_PATH)) if request.param == "pyslurm" else command_client
    lab_place = LabPlace(lab, made)
    yield lab_place
    lab_place.clear()


def running(place: Place, *, nodes: int, requeue: bool = True) -> JobRecord:
    """A job of user1 that runs on so many nodes."""
    slurm = place.client("user1")
    job_id = place.submit(nodes=nodes, comment=WISH, requeue=requeue)
    place.wait(lambda: slurm.job(job_id).state == JobState.RUNNING)
    return slurm.job(job_id)


def test_a_snapshot_shows_a_submitted_job_as_it_was_asked_for(place: Place) -> None:
    job_id = place.submit(nodes=3, comment=WISH, held=True)
    snapshot = place.client("operator").snapshot()
    job = next(job for job in snapshot.jobs if job.job_id == job_id)
    assert (job.user, job.state, job.held, job.comment) == ("user1", JobState.PENDING, True, WISH)
    assert (job.asked_nodes, job.gpus_per_node, job.nodes, job.start_s) == (3, 2, (), None)
    assert [(node.name, node.gpus, node.usable) for node in snapshot.nodes] == [(f"c{n}", 2, True) for n in range(1, 5)]


def test_a_running_job_shows_its_nodes_and_its_batch_host(place: Place) -> None:
    job = running(place, nodes=2)
    assert (len(job.nodes), job.asked_nodes, job.gpus_per_node) == (2, 2, 2)
    assert job.batch_host == job.nodes[0]
    assert job in place.client("operator").snapshot().jobs


def test_a_shrink_keeps_exactly_the_named_nodes_and_can_be_repeated(place: Place) -> None:
    job = running(place, nodes=4)
    slurm = place.client("user1")
    first, _, third, fourth = job.nodes
    slurm.shrink(job.job_id, [first, third, fourth])
    assert slurm.job(job.job_id).nodes == (first, third, fourth)
    slurm.shrink(job.job_id, [first, fourth])
    after = slurm.job(job.job_id)
    assert (after.nodes, after.batch_host, after.gpus_per_node) == ((first, fourth), job.batch_host, 2)
    assert after.state == JobState.RUNNING


def test_a_shrink_to_what_the_job_has_changes_nothing(place: Place) -> None:
    job = running(place, nodes=2)
    place.client("user1").shrink(job.job_id, job.nodes)
    assert place.client("user1").job(job.job_id) == job


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, 0)], ids=["without the batch host", "to no node"])
def test_an_impossible_shrink_is_refused_and_changes_nothing(place: Place, kept: slice) -> None:
    job = running(place, nodes=3)
    with pytest.raises(Refused):
        place.client("user1").shrink(job.job_id, job.nodes[kept])
    assert place.client("user1").job(job.job_id) == job


def test_a_shrink_to_a_node_that_the_job_does_not_have_is_refused(place: Place) -> None:
    job = running(place, nodes=2)
    foreign = next(name for name in ("c1", "c2", "c3", "c4") if name not in job.nodes)
    with pytest.raises(Refused):
        place.client("user1").shrink(job.job_id, [job.nodes[0], foreign])
    assert place.client("user1").job(job.job_id).nodes == job.nodes


def test_a_waiting_job_cannot_be_shrunk(place: Place) -> None:
    job_id = place.submit(nodes=2, held=True)
    with pytest.raises(Refused):
        place.client("user1").shrink(job_id, ["c1"])
    assert place.client("user1").job(job_id).asked_nodes == 2


def test_a_requeued_job_starts_again_at_the_new_size_under_its_id(place: Place) -> None:
    slurm = place.client("user1")
    job = running(place, nodes=2)
    slurm.shrink(job.job_id, [job.batch_host])
    slurm.requeue_hold(job.job_id)
    assert slurm.job(job.job_id).state in {JobState.ENDING, JobState.PENDING}
    place.wait(lambda: slurm.job(job.job_id).state == JobState.PENDING)
    assert slurm.job(job.job_id).held
    slurm.size_pending(job.job_id, 3)
    slurm.start_now(job.job_id)
    slurm.release(job.job_id)
    place.wait(lambda: slurm.job(job.job_id).state == JobState.RUNNING)
    again = slurm.job(job.job_id)
    assert (len(again.nodes), again.gpus_per_node, again.restarts, again.comment) == (3, 2, 1, WISH)


def test_putting_back_a_job_that_waits_already_keeps_it_waiting(place: Place) -> None:
    slurm = place.client("user1")
    job_id = place.submit(nodes=2, held=True)
    slurm.requeue_hold(job_id)
    record = slurm.job(job_id)
    assert (record.state, record.held, record.restarts) == (JobState.PENDING, True, 0)


def test_a_size_that_the_cluster_does_not_have_is_refused_and_changes_nothing(place: Place) -> None:
    slurm = place.client("user1")
    job_id = place.submit(nodes=2, held=True)
    before = slurm.job(job_id)
    with pytest.raises(Refused):
        slurm.size_pending(job_id, 40)
    after = slurm.job(job_id)
    assert (after.asked_nodes, after.tasks, after.cpus) == (2, before.tasks, before.cpus)
    slurm.size_pending(job_id, 1)
    assert slurm.job(job_id).asked_nodes == 1


def test_a_running_job_cannot_be_given_another_request(place: Place) -> None:
    job = running(place, nodes=1)
    with pytest.raises(Refused):
        place.client("user1").size_pending(job.job_id, 2)


def test_a_job_that_may_not_be_requeued_goes_on(place: Place) -> None:
    job = running(place, nodes=1, requeue=False)
    assert not job.requeueable
    with pytest.raises(Refused):
        place.client("user1").requeue_hold(job.job_id)
    assert place.client("user1").job(job.job_id) == job


def test_another_users_job_may_not_be_moved(place: Place) -> None:
    job = running(place, nodes=2)
    waiting = place.submit(nodes=1, held=True)
    stranger = place.client("user2")
    for forbidden in (
        lambda: stranger.shrink(job.job_id, job.nodes[:1]),
        lambda: stranger.requeue_hold(job.job_id),
        lambda: stranger.size_pending(waiting, 2),
        lambda: stranger.start_now(waiting),
        lambda: stranger.release(waiting),
    ):
        with pytest.raises(NotAllowed):
            forbidden()
    assert place.client("user1").job(job.job_id) == job
    assert place.client("user1").job(waiting).held


def test_an_operator_moves_everybodys_jobs(place: Place) -> None:
    job = running(place, nodes=2)
    operator = place.client("operator")
    operator.shrink(job.job_id, job.nodes[:1])
    assert operator.job(job.job_id).nodes == job.nodes[:1]


def test_a_job_that_does_not_exist_is_not_found(place: Place) -> None:
    slurm = place.client("operator")
    for ask in (slurm.job, slurm.requeue_hold, slurm.release, slurm.start_now):
        with pytest.raises(NotFound):
            ask("999999")
    with pytest.raises(NotFound):
        slurm.shrink("999999", ["c1"])


def test_accounting_tells_each_size_and_each_run(place: Place) -> None:
    slurm = place.client("user1")
    job = running(place, nodes=2)
    # Slurm keeps one row a second.
    place.wait(lambda: slurm.snapshot().taken_s >= job.start_s + 2)
    slurm.shrink(job.job_id, [job.batch_host])
    place.wait(lambda: slurm.snapshot().taken_s >= job.start_s + 4)
    slurm.requeue_hold(job.job_id)

    def rows() -> list[tuple[str, int, int | None, str]]:
        found = slurm.accounting(since_s=job.start_s - 10, job_ids=[job.job_id])
        return [(row.state, row.nnodes, row.gpus, row.comment) for row in found if row.start_s is not None]

    place.wait(lambda: len(rows()) == 2 and rows()[-1][0] == "REQUEUED")
    assert rows() == [("RESIZING", 2, 4, WISH), ("REQUEUED", 1, 2, WISH)]


def test_without_a_controller_slurm_is_unreachable(place: Place) -> None:
    job = running(place, nodes=1)
    slurm = place.client("user1")
    with place.controller_down():
        for ask in (slurm.snapshot, lambda: slurm.shrink(job.job_id, job.nodes)):
            with pytest.raises(Unreachable):
                ask()
    place.wait(lambda: bool(slurm.snapshot().jobs))
    assert slurm.job(job.job_id).state == JobState.RUNNING
