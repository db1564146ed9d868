"""What the pages cost: making the report's file of a large history, and filling in the live page of a large cluster."""

import random
import time
from typing import Any

from ones_slurm.daemon.answers import JobRow, State
from ones_slurm.daemon.page import TEMPLATES
from ones_slurm.daemon.page_view import Reader, page_view
from ones_slurm.engine.loop import Latest
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.report.page import report_page
from ones_slurm.report.segments import JobHistory, Segment

JOBS, NODES, GPUS_PER_NODE = 20_000, 256, 4
LIVE_JOBS, LIVE_NODES = 1_000, 2_000
# Ours: a person waits so long for a file, and a tick of onesd is never less often than every few seconds.
GOAL_REPORT_S, GOAL_LIVE_S = 5.0, 1.0


def run() -> list[dict[str, Any]]:
    """CPU seconds of this process, and the size of what comes out."""
    jobs = _history()
    began_s = time.process_time()
    page = report_page(jobs, site="bench", now_s=float(jobs[-1].segments[-1].end_s), gpus_per_node={})
    report_s = time.process_time() - began_s
    latest, rows, state = _tick()
    began_s = time.process_time()
    view = page_view(latest, rows, state, (), Reader(None, True))
    body = TEMPLATES.get_template("page_body.html").render(view=view)
    live_s = time.process_time() - began_s
    return [
        _result(
            f"report page of {JOBS:,} jobs, without a simulation", report_s, GOAL_REPORT_S, f"{len(page) / 1e6:.1f} MB"
        ),
        _result(
            f"live page of {LIVE_NODES:,} nodes and {LIVE_JOBS:,} jobs, once a tick and kind of reader",
            live_s,
            GOAL_LIVE_S,
            f"{len(body) / 1e6:.1f} MB",
        ),
    ]


def _result(name: str, value: float, goal: float, note: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": "s CPU", "goal": goal, "better": "lower", "note": note}


def _history() -> list[JobHistory]:
    """Jobs of one to eight nodes, one after the other on whichever are free first."""
    chance = random.Random(1)
    free = {f"n{number}": 0 for number in range(NODES)}
    found = []
    for number in range(JOBS):
        names = sorted(free, key=free.__getitem__)[: chance.choice((1, 1, 1, 2, 4, 8))]
        submit_s = 30 * number
        start_s = max(submit_s, *(free[name] for name in names))
        end_s = start_s + chance.randint(60, 7200)
        free.update(dict.fromkeys(names, end_s))
        segment = Segment(
            job_id=str(number),
            user=f"u{number % 40}",
            account="a",
            partition="p",
            name="train",
            submit_s=submit_s,
            start_s=start_s,
            end_s=end_s,
            open=False,
            nodes=tuple(names),
            gpus=GPUS_PER_NODE * len(names),
            wait_since_s=submit_s,
            ended_by="COMPLETED",
        )
        found.append(JobHistory(job_id=segment.job_id, user=segment.user, segments=(segment,)))
    return found


def _tick() -> tuple[Latest, list[JobRow], State]:
    """Jobs of two nodes each on all nodes of the cluster."""
    nodes = tuple(NodeView(f"n{number}", GPUS_PER_NODE, True) for number in range(LIVE_NODES))
    jobs = tuple(
        JobView(
            job_id=str(number),
            user=f"u{number % 40}",
            state=JobState.RUNNING,
            asked_nodes=2,
            gpus_per_node=GPUS_PER_NODE,
            name="train",
            nodes=(f"n{2 * number}", f"n{2 * number + 1}"),
        )
        for number in range(LIVE_JOBS)
    )
    rows = [
        JobRow(
            job_id=job.job_id,
            partition="p",
            name=job.name,
            user=job.user,
            state="running",
            nodes=2,
            gpus=job.gpus,
            done=0.5,
            reason="others wait",
        )
        for job in jobs
    ]
    targets = tuple(Target(job_id=job.job_id, nodes=1, batch=64, reason="others wait") for job in jobs)
    state = State(
        program="onesd",
        mode="act",
        policy="ones",
        seed=1,
        interval_s=30.0,
        started_s=0.0,
        tick=1,
        last_tick_s=0.0,
        tick_took_s=0.1,
        jobs=LIVE_JOBS,
        elastic_jobs=LIVE_JOBS,
        moves=0,
    )
    return Latest(tick=1, view=ClusterView(0.0, nodes, jobs), plan=Plan(targets)), rows, state
