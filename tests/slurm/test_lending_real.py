"""Companions on a real slurmctld: what they inherit, how they end, and what becomes of refused and late ones.

The scripts only sleep; the base's wrapper speaks from here, and takes every companion for ready that Slurm has started.
"""

import time

import numpy as np
import pytest
from elastic_world import Everything
from lending_world import LiveWrapper
from places import LabPlace, command_client, runner

from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Grow, Outcome, Requeue, Shrink, Status
from ones_slurm.model.settings import Moves, Site
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.lenders import OwnSubmission
from ones_slurm.slurm.live import LiveCluster
from ones_slurm.slurm.loans import companions_of

pytestmark = pytest.mark.slurm


class Shown:
    """What the stand-in for a wrapper needs to know of the world, taken from Slurm."""

    rough = False

    def __init__(self, jobs, job_id):
        self.now_s = time.time()
        self.jobs = {record.job_id: ShownJob(record) for record in jobs}
        base = next((record for record in jobs if record.job_id == job_id), None)
        found = companions_of(base, jobs) if base is not None else ()
        self.running = [ShownJob(one) for one in found if one.state is JobState.RUNNING]

    def lenders(self, _):
        return self.running


class ShownJob:
    def __init__(self, record):
        self.job_id, self.nodes, self.restarts, self.start_s = record.job_id, record.nodes, record.restarts, 0.0
        self.state = "RUNNING" if record.state is JobState.RUNNING else "PENDING"
        self.completing_until_s = 0.0 if record.state is JobState.ENDING else None


class Story:
    """`user` is who runs onesd: the owner of the jobs, or root."""

    def __init__(self, lab, *, nodes=1, gpus=2, user="user1", timeout_s=40.0, options=()):
        self.lab, self.place = lab, LabPlace(lab, command_client)
        self.slurm, self.board = self.place.client("user1"), Board()
        sbatch = [
            "sbatch",
            "--parsable",
            "--requeue",
            f"--nodes={nodes}",
            f"--gpus-per-node={gpus}",
            "--time=30",
            *options,
        ]
        wish = "--comment=charge:7 ones:nodes=1-4,batch=64-4096"
        self.job_id = lab.run([*sbatch, wish, "--wrap=sleep 600"]).stdout.strip()
        quick = {"save_s": 0.2, "start_s": 0.2, "switch_s": 0.5, "come_up_s": 0.0}
        self.wrapper = LiveWrapper(self.job_id, folder="/home/user1", join=("sleep", "600"), **quick)
        self.site = Site(moves=Moves(companions="daemon", companion_timeout_s=timeout_s))
        self.lender = OwnSubmission(runner(lab, user), user)
        self.cluster = self.daemon()
        self.until(lambda _: self.wrapper.history)

    def daemon(self):
        """A new life of onesd, on a new board."""
        self.board = Board()
        backoff = Backoff(np.random.default_rng(1), first_s=0.5, longest_s=2.0)
        return LiveCluster(
            self.slurm,
            self.board,
            self.site,
            Everything(),
            backoff=backoff,
            pause=self.pause,
            lender=self.lender,
            generations={self.job_id: 2} if self.wrapper.history else None,
        )

    def pause(self, seconds):
        until_s = time.monotonic() + seconds
        while True:
            self.wrapper.live(Shown(self.slurm.jobs_of("user1"), self.job_id), self.board)
            news = self.board.wait_for_news(0)
            if news or time.monotonic() >= until_s:
                return news
            time.sleep(0.2)

    def until(self, found, within_s=120.0):
        give_up_s = time.time() + within_s
        while time.time() < give_up_s:
            if ready := found(self.cluster.wait(time.time() + 1.0)):
                return ready
        raise TimeoutError("it did not come about")

    def ends(self, action, within_s=120.0):
        """Acts, and waits for the outcome."""
        self.cluster.act([action])
        return self.until(lambda events: [one for one in events if isinstance(one, Outcome)], within_s)[0]

    @property
    def companions(self):
        jobs = self.slurm.jobs_of("user1")
        return companions_of(next(job for job in jobs if job.job_id == self.job_id), jobs)

    @property
    def job(self):
        return next(job for job in self.cluster.observe().jobs if job.job_id == self.job_id)

    def grow(self, nodes=3):
        job = self.job
        assert job.can_grow
        held = len(job.nodes)
        return Grow(job_id=job.job_id, generation=job.generation + 1, nodes=nodes, from_nodes=held, batch=192)


@pytest.fixture
def tell(slurm_lab):
    """Makes a story; the lab is empty afterwards."""
    yield lambda **more: Story(slurm_lab, **more)
    LabPlace(slurm_lab, command_client).clear()


@pytest.fixture
def limits(slurm_lab):
    """Sets limits of the QOS that everybody has, and lifts them afterwards."""

    def set_limits(**limits):
        words = [f"{name}={value}" for name, value in limits.items()]
        slurm_lab.run(["sacctmgr", "--immediate", "modify", "qos", "normal", "set", *words], user="root", host="head")

    yield set_limits
    set_limits(MaxJobsPU=-1, MaxSubmitJobsPU=-1)


@pytest.mark.parametrize("user", ["user1", "root"])
def test_a_companion_inherits_comes_up_and_is_ended_when_the_ranks_have_left(tell, user):
    story = tell(user=user, options=["--account=physics", "--constraint="])
    grown = story.ends(story.grow())
    assert (grown.status, grown.reason) == (Status.DONE, "trains")
    base = story.slurm.job(story.job_id)
    (companion,) = story.companions
    for field in ("user", "account", "qos", "partition", "gpus_per_node"):
        assert getattr(companion, field) == getattr(base, field), field
    assert (len(companion.nodes), companion.requeueable) == (2, False)
    assert set(companion.nodes).isdisjoint(base.nodes)
    assert 28 <= companion.time_limit_s / 60 <= 30
    assert companion.comment.strip().startswith("charge:7 ones:companion-of=")

    job = story.job
    assert (len(job.nodes), job.gpus, len(story.cluster.observe().free_nodes())) == (3, 6, 1)
    keep = base.nodes
    shrunk = story.ends(Shrink(job_id=job.job_id, generation=job.generation + 1, keep=keep, batch=64))
    assert shrunk.status is Status.DONE
    story.place.wait(lambda: all(one.state not in (JobState.RUNNING, JobState.ENDING) for one in story.companions))
    assert story.slurm.job(story.job_id).restarts == 0
    assert [nodes for _, nodes, _ in story.wrapper.history][-1] == keep


def test_a_job_of_a_part_of_a_node_is_lent_parts_of_nodes(tell):
    story = tell(gpus=1)
    assert story.ends(story.grow(nodes=2)).status is Status.DONE
    (companion,) = story.companions
    assert (len(companion.nodes), companion.gpus_per_node) == (1, 1)
    assert set(companion.nodes).isdisjoint(story.slurm.job(story.job_id).nodes)
    assert story.job.gpus == 2


def test_a_companion_ends_with_its_base(tell):
    story = tell()
    story.ends(story.grow())
    story.lab.run(["scancel", story.job_id])
    story.place.wait(lambda: story.slurm.job(story.job_id).state is JobState.FAILED)
    story.cluster.observe()
    story.place.wait(lambda: not [job for job in story.slurm.jobs_of("user1") if job.state is JobState.RUNNING])


def test_a_limit_on_running_jobs_ends_the_growth_and_withdraws_the_companion(tell, limits):
    story = tell()
    limits(MaxJobsPU=1)
    refused = story.ends(story.grow())
    assert refused.status is Status.REFUSED
    assert "QOSMaxJobsPerUserLimit" in refused.reason
    assert [one.state for one in story.companions] in ([], [JobState.FAILED])
    assert story.wrapper.history[1:] == []


def test_a_submission_that_slurm_refuses_changes_nothing(tell, limits):
    story = tell()
    limits(MaxSubmitJobsPU=1)
    refused = story.ends(story.grow())
    assert refused.status is Status.REFUSED
    assert "QOSMaxSubmitJobPerUserLimit" in refused.reason
    assert not story.job.can_grow
    assert story.wrapper.history[1:] == []


def test_a_companion_that_starts_too_late_is_withdrawn(tell):
    story = tell(timeout_s=8.0)
    action = story.grow()
    story.place.submit(nodes=3)
    late = story.ends(action)
    assert (late.status, "did not start within 8 s" in late.reason) == (Status.FAILED, True)
    assert [one.state for one in story.companions] in ([], [JobState.FAILED])
    assert story.wrapper.history[1:] == []


def test_a_daemon_that_dies_in_between_finds_the_companion_that_was_asked_for(tell):
    story = tell()
    action = story.grow()
    story.wrapper.come_up_s = float("inf")
    story.cluster.act([action])
    story.until(lambda _: story.companions)
    story.cluster = story.daemon()
    story.wrapper.come_up_s = 0.0
    story.cluster.observe()
    assert story.ends(action).status is Status.DONE
    assert len(story.companions) == 1


def test_a_requeue_gives_the_loans_back_first(tell):
    story = tell()
    story.ends(story.grow(nodes=2))
    job = story.job
    ended = story.ends(
        Requeue(job_id=job.job_id, generation=job.generation + 1, nodes=4, from_nodes=2, batch=256), within_s=240
    )
    assert ended.status is Status.DONE
    assert [one.state for one in story.companions] in ([], [JobState.FAILED])
    assert len(story.wrapper.history[-1][1]) == 4
