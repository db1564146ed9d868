"""Imagined runs as the report's page draws them, beside what really happened."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from ones_slurm.model.settings import Site
from ones_slurm.report.page_data import Comparison, Held, Timeline, TimelineJob, only, timeline_of
from ones_slurm.report.segments import JobHistory
from ones_slurm.sim.job import Job
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.study.setting import Result, setting_of_site, simulate_jobs
from ones_slurm.study.whatif import read_month


def beside(
    jobs: Sequence[JobHistory],
    rows: Sequence[AccountingRow],
    site: Site,
    *,
    now_s: float,
    told: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """What plain Slurm, and then the site's own policy, make of the same submissions.

    `told` hears the policy, how many of its jobs are over, and how many there are. Raises `UsageError` when no job is
    left to be simulated.
    """
    month = read_month(rows, site, now_s=now_s)
    setting = setting_of_site(site)
    there = {job.job_id for job in month.work}
    really = only(timeline_of(jobs), there)
    policies = ["slurm", *([site.policy.full_name] if any(month.elastic.values()) else [])]
    timelines = [really]
    for policy in dict.fromkeys(policies):
        hear = (lambda over, policy=policy: told(policy, over, len(month.work))) if told is not None else None
        result = simulate_jobs(month.work, policy, setting, month.nodes, told=hear)
        name = "plain Slurm, simulated" if policy == "slurm" else f"policy {policy}, simulated"
        timelines.append(timeline(result, name, really.begin_s))
    left_out = [f"{count} jobs are left out of it, because {why}" for why, count in month.left_out.items()]
    rigid = [f"{count} jobs keep their size in it, because {why}" for why, count in month.rigid.items()]
    return Comparison(
        timelines=tuple(timelines),
        gpus=sum(node.gpus for node in month.nodes),
        assumptions=tuple(_sentence(said) for said in (*month.assumed, *left_out, *rigid)),
    )


def timeline(result: Result, name: str, zero_s: float) -> Timeline:
    """One run, in the time in which the real one began at `zero_s`."""
    jobs = sorted(result.cluster.ended, key=lambda job: (job.what.submit_s, job.job_id))
    first_s = min((job.what.submit_s for job in jobs), default=0.0)
    return Timeline(name, tuple(_job(job, zero_s - first_s) for job in jobs))


def _job(job: Job, shift_s: float) -> TimelineJob:
    held = tuple(
        Held(
            from_s=span.from_s + shift_s,
            until_s=span.until_s + shift_s,
            gpus=span.allocation,
            batch=span.batch or None,
        )
        for span in job.spans
    )
    submit_s = job.what.submit_s + shift_s
    gaps = [(before.until_s, after.from_s) for before, after in pairwise(held) if after.from_s > before.until_s]
    first = [(submit_s, held[0].from_s)] if held and held[0].from_s > submit_s else []
    return TimelineJob(
        job_id=job.job_id,
        label=f"{job.what.kind} of {job.what.user}",
        submit_s=submit_s,
        end_s=job.end_s + shift_s if job.end_s is not None else None,
        held=held,
        waits=(*first, *gaps),
    )


def _sentence(said: str) -> str:
    return said[:1].upper() + said[1:]
