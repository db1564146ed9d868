"""A scripted history on a real Slurm: the report's GPU-seconds are those that squeue showed, second by second."""

import json
import threading
import time
from collections import Counter

import pytest
from own_lab import own_lab

pytestmark = pytest.mark.slurm

GPUS_PER_NODE = 4
ONES = ["python", "-m", "ones_slurm.cli.main"]
REPORT = [*ONES, "report", "-a", "-S", "now-1hour"]


@pytest.fixture(scope="module")
def lab():
    preempting = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    with own_lab("hist", nodes=13, gpus_per_node=GPUS_PER_NODE, slurm_conf=preempting) as running:
        running.run(["scontrol", "update", "PartitionName=other", "PriorityTier=10"], user="root", host="head")
        yield running


class Watch(threading.Thread):
    """Looks at squeue twice a second and adds up the GPUs of each job; all jobs here take whole nodes.

    `unsure` is what the looks leave open where the machine was too busy for one each second: GPUs that came or went
    between two looks, times the time beyond a second between these.
    """

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.lab, self.over = lab, threading.Event()
        self.gpu_s, self.unsure, self.states = Counter(), 0.0, {}

    def run(self):
        held, at_s = {}, time.time()
        while not self.over.is_set():
            began_s = time.time()
            shown = self.lab.run(["squeue", "-h", "-a", "-r", "-o", "%i|%t|%D"], user="root", host="head").stdout
            now_s = (began_s + time.time()) / 2
            rows = [line.split("|") for line in shown.splitlines()]
            self.states = {job: state for job, state, _ in rows}
            now_held = {job: int(nodes) * GPUS_PER_NODE for job, state, nodes in rows if state == "R"}
            for job, gpus in held.items():
                self.gpu_s[job] += gpus * (now_s - at_s)
            changed = sum(abs(held.get(job, 0) - now_held.get(job, 0)) for job in held | now_held)
            self.unsure += changed * max(now_s - at_s - 1.0, 0.0)
            held, at_s = now_held, now_s
            self.over.wait(max(0.5 - (time.time() - began_s), 0.05))

    def until(self, what, *jobs, within_s=150):
        """Waits until every one of these jobs is in that state, or is gone (None)."""
        deadline = time.monotonic() + within_s
        while any(self.states.get(job) != what for job in jobs):
            assert self.is_alive(), "the watch has failed"
            assert time.monotonic() < deadline, f"{jobs} are not {what}: {self.states}"
            time.sleep(0.2)


def submitted(lab, *options, seconds=600, user="user1"):
    script = f"#!/bin/bash\nsleep {seconds} & wait\n"
    words = ["sbatch", "--parsable", "--exclusive", "--gres=gpu:4", "-o", "/dev/null", *options]
    return lab.run(words, input=script, user=user).stdout.strip()


def accounted(lab):
    """The report, once accounting has heard of every end."""
    deadline = time.monotonic() + 240
    while True:
        told = json.loads(lab.run([*REPORT, "--json"], user="root", host="head", timeout_s=120).stdout)
        jobs = {job["jobid"]: job for job in told["jobs"]}
        if all(job["completion_s"] is not None for job in jobs.values()):
            return jobs, told["totals"]
        assert time.monotonic() < deadline, "accounting never heard of some end"
        time.sleep(1)


def ends(job):
    return [segment["endedby"].split()[0] for segment in job["segments"]]


def test_the_report_adds_up_to_what_squeue_showed(lab):
    watch = Watch(lab)
    watch.start()
    try:
        late = submitted(lab, "-N2", "-t1")
        resized = submitted(lab, "-N2")
        requeued = submitted(lab, "-N1", "--requeue")
        broken = submitted(lab, "-N1", "--no-requeue", "-w", "c9")
        preempted = submitted(lab, "-N1", "--requeue", "-w", "c10")
        base = submitted(lab, "-N4", "--comment=ones:nodes=4-5", user="user2")
        watch.until("R", late, resized, requeued, broken, preempted, base)
        array = submitted(lab, "--array=1-2%1", "-N1", seconds=8)
        hopeless = submitted(lab, "-N10")
        watch.until("PD", hopeless)
        lab.run(["scancel", hopeless])
        companion = submitted(lab, "-N1", f"--comment=ones:companion-of={base}", seconds=20, user="user2")
        watch.until("R", companion)
        time.sleep(8)
        lab.stop_node("c9")
        lab.run(["scontrol", "update", "NodeName=c9", "State=DOWN", "Reason=power"], user="root", host="head")
        host = lab.run(["squeue", "-h", "-j", resized, "-o", "%B"]).stdout.strip()
        lab.run(["scontrol", "update", f"JobId={resized}", f"NodeList={host}"])
        lab.run(["scontrol", "requeue", requeued])
        first = submitted(lab, "-N1", "-p", "other", "-w", "c10", seconds=10)
        watch.until("R", first)
        watch.until(None, f"{array}_1", f"{array}_2", companion, first)
        het = lab.run(
            ["sbatch", "--parsable", "-o", "/dev/null", "--exclusive", "--gres=gpu:4", "-N1", ":", "--exclusive",
             "--gres=gpu:4", "-N1", "--wrap", "sleep 8"]
        ).stdout.strip()  # fmt: skip
        watch.until("R", requeued, preempted, f"{het}+0")
        watch.until(None, late, f"{het}+0", f"{het}+1")
        lab.run(["scancel", resized, requeued, preempted])
        lab.run(["scancel", base], user="user2")
        watch.until(None, resized, requeued, preempted, base, broken)
    finally:
        watch.over.set()
        watch.join()
    jobs, totals = accounted(lab)
    assert ends(jobs[late]) == ["TIMEOUT"]
    assert ends(jobs[resized]) == ["RESIZED", "CANCELLED"]
    assert [segment["nodes"] for segment in jobs[resized]["segments"]] == [2, 1]
    assert ends(jobs[requeued]) == ["REQUEUED", "CANCELLED"]
    assert ends(jobs[broken]) == ["NODE_FAIL"]
    assert ends(jobs[preempted])[0] == "PREEMPTED"
    assert (jobs[preempted]["interruptions"], jobs[preempted]["moves"]) == (1, 0)
    assert ends(jobs[hopeless]) == ["CANCELLED"]
    assert jobs[hopeless]["gpu_s"] == 0
    assert {f"{array}_1", f"{array}_2", f"{het}+0", f"{het}+1"} <= jobs.keys()
    assert companion not in jobs, "a companion is a part of its base"
    assert [(segment["nodes"], segment["companions"]) for segment in jobs[base]["segments"]] == [
        (4, ""),
        (5, companion),
        (4, ""),
    ]
    page = lab.run([*ONES, "eff", late], user="root", host="head").stdout
    assert "state         TIMEOUT" in page
    assert "Ask for more (`--time`)" in page
    seen = watch.gpu_s
    seen[base] += seen.pop(companion)
    told = sum(job["gpu_s"] for job in jobs.values())
    assert totals["gpu_s"] == told
    assert told == pytest.approx(sum(seen.values()), abs=0.01 * told + watch.unsure)
    for job_id, job in jobs.items():
        # Accounting keeps whole seconds: each end of a stretch may be off by one.
        edges = 2 * sum(segment["gpus"] for segment in job["segments"])
        assert job["gpu_s"] == pytest.approx(seen[job_id], abs=edges + watch.unsure), job_id
