"""Jobs that are resized and requeued on a real Slurm: the report says what squeue showed meanwhile."""

import json
import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from own_lab import own_lab

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.plan import Plan
from ones_slurm.model.settings import Site
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.live import LiveCluster

pytestmark = pytest.mark.slurm

GPUS_PER_NODE = 2
STUBBORN = "#!/bin/bash\ntrap '' TERM\nwhile :; do sleep 0.2; done\n"
REPORT = ["python", "-m", "ones_slurm.cli.main", "report"]


@pytest.fixture(scope="module")
def lab():
    with own_lab("report", nodes=3, gpus_per_node=GPUS_PER_NODE) as running:
        yield running


class Watch(threading.Thread):
    """Looks at the live cluster all the time, adds up what a job held, and keeps a journal as onesd does."""

    def __init__(self, lab, job, journal_path):
        super().__init__(daemon=True)
        self.job, self.path, self.over = job, journal_path, threading.Event()
        self.state, self.seconds, self.longest_look_s = "", Counter(), 0.0

        def as_operator(argv, *, env, timeout_s):
            return lab.run(argv, user="operator", host="head", env=env, timeout_s=timeout_s, check=False)

        rights = SimpleNamespace(can_shrink=True, can_requeue=True)
        self.cluster = LiveCluster(
            CommandClient(as_operator), Board(), Site(), rights, backoff=Backoff(np.random.default_rng(1))
        )

    def run(self):
        at_s, held, tick = time.monotonic(), ("pending", 0), 0
        with Journal.open(self.path) as journal:
            journal.begin_run(Run(policy="fifo", seed=1), time.time())
            while not self.over.is_set():
                view, now_s, tick = self.cluster.observe(), time.monotonic(), tick + 1
                journal.record(
                    Tick(
                        tick=tick,
                        now_s=view.now_s,
                        took_s=0.0,
                        view=view,
                        plan=Plan(),
                        memory=Memory(),
                        decisions=(),
                    )
                )
                self.seconds[held] += now_s - at_s
                self.longest_look_s = max(self.longest_look_s, now_s - at_s)
                job = next((job for job in view.jobs if job.job_id == self.job), None)
                self.state = "gone" if job is None else str(job.state)
                at_s, held = now_s, (self.state, 0 if job is None else len(job.nodes))
                self.over.wait(0.4)

    def until(self, *states):
        deadline = time.monotonic() + 180
        while self.state not in states:
            assert self.is_alive(), "the watch has failed"
            assert time.monotonic() < deadline, f"the job is {self.state}, not {states}"
            time.sleep(0.1)


class Story:
    """One job with a wish, and what is done to it."""

    def __init__(self, lab):
        submit = ["sbatch", "--parsable", "-N3", "-n3", "--gres=gpu:2", "--comment=ones:nodes=1-3", "-o", "/dev/null"]
        self.lab, self.job = lab, lab.run(submit, input=STUBBORN).stdout.strip()
        self.journal = f"home/user1/journal-{self.job}.sqlite"
        self.watch = Watch(lab, self.job, lab.folder / self.journal)
        self.watch.start()
        self.watch.until("running")
        time.sleep(3)

    def shrink(self, nodes):
        self.lab.run(["scontrol", "update", f"JobId={self.job}", f"NodeList={nodes}"])
        time.sleep(3)

    def requeue(self, nodes):
        self.lab.run(["scontrol", "requeuehold", self.job])
        self.watch.until("pending")
        size = [f"NumNodes={nodes}-{nodes}", f"NumTasks={nodes}", f"NumCPUs={nodes}"]
        self.lab.run(["scontrol", "update", f"JobId={self.job}", *size])
        self.lab.run(["scontrol", "update", f"JobId={self.job}", "StartTime=now"])
        time.sleep(2)
        self.lab.run(["scontrol", "release", self.job])
        self.watch.until("running")
        time.sleep(3)

    def end(self):
        self.lab.run(["scancel", self.job])
        self.watch.until("ending", "gone")
        self.watch.over.set()
        self.watch.join()
        return self.watch.seconds

    @property
    def tolerance_s(self):
        """Accounting keeps whole seconds, and each end of a stretch was seen up to one look late."""
        return 1.0 + 2 * self.watch.longest_look_s

    def told(self, *options):
        told = json.loads(self.lab.run([*REPORT, "--json", "-j", self.job, *options], user="root", host="head").stdout)
        return told["jobs"][0]


def ran(history, nodes):
    return sum(s["end"] - s["start"] for s in history["segments"] if s["nodes"] == nodes)


def seen(seconds, state):
    return sum(time_s for (its_state, _), time_s in seconds.items() if its_state == state)


def test_accounting_alone_agrees_with_squeue(lab):
    story = Story(lab)
    story.requeue(2)
    story.shrink("c1")
    seconds = story.end()
    history = story.told("-u", "user1")
    assert [(s["nodes"], s["gpus"], s["endedby"].split()[0]) for s in history["segments"]] == [
        (3, 6, "REQUEUED"),
        (2, 4, "RESIZED"),
        (1, 2, "CANCELLED"),
    ]
    for nodes in (3, 2, 1):
        assert ran(history, nodes) == pytest.approx(seconds["running", nodes], abs=story.tolerance_s)
    taken_s = history["segments"][0]["restart_gpu_s"] / (3 * GPUS_PER_NODE)
    assert taken_s > 2, "a script that ignores SIGTERM keeps its nodes until KillWait is over"
    assert taken_s == pytest.approx(seen(seconds, "ending"), abs=story.tolerance_s)
    assert history["wait_s"] == pytest.approx(seen(seconds, "pending"), abs=story.tolerance_s)
    assert history["completion_s"] == history["wait_s"] + taken_s + sum(ran(history, nodes) for nodes in (3, 2, 1))


def test_with_the_journal_a_requeue_after_a_resize_is_told_right(lab):
    story = Story(lab)
    story.shrink("c1")
    story.requeue(3)
    story.shrink("c1,c3")
    story.requeue(2)
    story.requeue(1)
    seconds = story.end()
    history = story.told("--journal", f"/{story.journal}")
    assert [(s["nodes"], s["gpus"], s["endedby"].split()[0]) for s in history["segments"]] == [
        (3, 6, "RESIZED"),
        (1, 2, "REQUEUED"),
        (3, 6, "RESIZED"),
        (2, 4, "REQUEUED"),
        (2, 4, "REQUEUED"),
        (1, 2, "CANCELLED"),
    ]
    # Where accounting lost a run, its end and the clean-up behind it can no longer be told apart.
    taken_s = sum(s["restart_gpu_s"] // s["gpus"] for s in history["segments"])
    assert ran(history, 3) == pytest.approx(seconds["running", 3], abs=story.tolerance_s)
    held_s = sum(s["end"] - s["start"] for s in history["segments"]) + taken_s
    assert held_s == pytest.approx(seen(seconds, "running") + seen(seconds, "ending"), abs=2 * story.tolerance_s)
    assert history["wait_s"] == pytest.approx(seen(seconds, "pending"), abs=2 * story.tolerance_s)


def test_nobody_sees_a_job_of_another_user_unasked(lab):
    job = lab.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true"], user="user2").stdout.strip()
    report = [*REPORT, "-P", "-o", "jobid,user"]
    deadline = time.monotonic() + 180
    while f"{job}|user2" not in lab.run([*report, "-a"], check=False).stdout:
        assert time.monotonic() < deadline, "accounting never heard of the job"
        time.sleep(0.2)
    assert f"{job}|user2" not in lab.run(report, check=False).stdout
    assert f"{job}|user2" in lab.run([*report, "-j", job]).stdout
    assert lab.run([*report, "-u", "nobody"], check=False).returncode == 5
