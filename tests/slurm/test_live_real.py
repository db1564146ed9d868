"""The live cluster on a real slurmctld: one job is shrunk in place and grown by a requeue, for real.

The job's script only sleeps; its wrapper speaks from here, to the board, and checks that no node goes while it trains.
"""

import dataclasses
import time

import numpy as np
import pytest
from elastic_world import Everything, FakeWrapper
from places import LabPlace, command_client, what_slurm_says

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Outcome, Requeue, Shrink, Status
from ones_slurm.model.settings import Site
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.live import LiveCluster

pytestmark = pytest.mark.slurm


@dataclasses.dataclass
class Shown:
    """What the fake wrapper needs to know of the world, taken from Slurm."""

    jobs: dict
    now_s: float
    rough: bool = False


@dataclasses.dataclass
class ShownJob:
    state: str
    nodes: tuple
    restarts: int
    completing_until_s: float | None


@pytest.fixture
def place(slurm_lab):
    lab_place = LabPlace(slurm_lab, command_client)
    yield lab_place
    lab_place.clear()


class Story:
    def __init__(self, place, nodes):
        self.lab, self.slurm, self.board = place.lab, place.client("operator"), Board()
        self.job_id = place.submit(nodes=nodes, comment="ones:nodes=1-4,batch=64-4096")
        self.wrapper = FakeWrapper(self.job_id, save_s=0.2, start_s=0.2)
        backoff = Backoff(np.random.default_rng(1), first_s=0.5, longest_s=2.0)
        self.cluster = LiveCluster(self.slurm, self.board, Site(), Everything(), backoff=backoff, pause=self.pause)

    def pause(self, seconds):
        until_s = time.monotonic() + seconds
        while True:
            record = self.slurm.job(self.job_id)
            job = ShownJob(
                "RUNNING" if record.state is JobState.RUNNING else "PENDING",
                record.nodes,
                record.restarts,
                0.0 if record.state is JobState.ENDING else None,
            )
            self.wrapper.live(Shown({self.job_id: job}, time.time()), self.board)
            news = self.board.wait_for_news(0)
            if news or time.monotonic() >= until_s:
                return news
            time.sleep(0.1)

    def until_outcome(self, action, within_s=240.0):
        assert self.cluster.act([action]) == [Outcome(self.job_id, action.generation, Status.ACCEPTED)]
        return self.until(lambda events: [one for one in events if isinstance(one, Outcome)], within_s)[0]

    def until(self, found, within_s=240.0):
        give_up_s = time.time() + within_s
        while time.time() < give_up_s:
            if ready := found(self.cluster.wait(time.time() + 1.0)):
                return ready
        raise TimeoutError(f"it did not come about within {within_s:g} s\n{what_slurm_says(self.lab)}")

    @property
    def job(self):
        return next(job for job in self.cluster.observe().jobs if job.job_id == self.job_id)


def test_a_shrink_and_a_requeue_happen_for_real(place):
    story = Story(place, nodes=3)
    story.until(lambda _: story.wrapper.history)
    job = story.job
    assert (job.elastic, job.why_rigid, len(job.nodes), job.gpus_per_node) == (True, "", 3, 2)
    keep = (job.batch_host, max(set(job.nodes) - {job.batch_host}))

    shrunk = story.until_outcome(
        Shrink(job_id=job.job_id, generation=job.generation + 1, keep=keep, batch=128, lr_scale=2.0)
    )
    assert (shrunk.status, shrunk.reason) == (Status.DONE, "trains")
    job = story.job
    assert set(job.nodes) == set(keep)
    assert story.wrapper.history[-1][2] == 128

    grown = story.until_outcome(
        Requeue(job_id=job.job_id, generation=job.generation + 1, nodes=4, from_nodes=2, batch=256, lr_scale=4.0)
    )
    assert (grown.status, grown.reason) == (Status.DONE, "trains")
    job = story.job
    assert (len(job.nodes), job.restarts, job.held, job.move) == (4, 1, False, None)
    assert story.wrapper.history[-1][1:] == (job.nodes, 256)


def test_a_daemon_that_dies_while_the_job_is_held_goes_on_from_the_facts(place):
    story = Story(place, nodes=1)
    story.until(lambda _: story.wrapper.history)
    generation = story.job.generation + 1
    slurm = story.slurm
    slurm.requeue_hold(story.job_id)  # as far as the daemon before had come
    place.wait(lambda: slurm.job(story.job_id).state is JobState.PENDING)
    story.wrapper.phase = None
    grown = story.until_outcome(
        Requeue(job_id=story.job_id, generation=generation, nodes=2, from_nodes=1, batch=128, lr_scale=2.0)
    )
    assert grown.status is Status.DONE
    assert story.wrapper.history[-1][2] == 128
    assert not slurm.job(story.job_id).held
