"""One or two sentences on what a job could have done better, each with the remedy: what `ones eff` ends with.

Rules are tried in the order of how much there is to be had; the first two that apply are said. Their thresholds are
ours: below a tenth nobody changes a script.
"""

from collections.abc import Iterator

from ones_slurm.report.figures import JobFigures
from ones_slurm.report.losses import Losses
from ones_slurm.report.segments import JobHistory
from ones_slurm.report.shown import show_duration, show_share
from ones_slurm.report.usage import Usage, usage_advice

WORTH_SAYING = 0.1
_MOST = 2
# Ours: a limit of less is seldom what keeps a job waiting.
_SHORT_LIMIT_S = 3600


def advice(job: JobHistory, figures: JobFigures, lost: Losses, use: Usage | None = None) -> tuple[str, ...]:
    """What to tell the user, the most useful first; never nothing."""
    of_use = () if use is None else usage_advice(use)
    said = [*_of_the_end(job, figures), *_of_losses(lost), *of_use, *_of_waits(job, figures)]
    if said:
        return tuple(said[:_MOST])
    if figures.completion_s is None:
        return ("It is not over; nothing is wrong so far that accounting can see.",)
    return ("Nothing was wasted that accounting and the journal can see.",)


def _of_the_end(job: JobHistory, figures: JobFigures) -> Iterator[str]:
    last = job.segments[-1]
    ran_s = sum(segment.duration_s for segment in job.segments)
    if last.ended_by == "TIMEOUT":
        yield (
            f"It ran into its time limit after {show_duration(ran_s)}: what it did since its last checkpoint is lost. "
            "Ask for more (`--time`), or have it save and go back into the queue in time (`--signal=B:USR2@600`)."
        )
    elif last.ended_by == "OUT_OF_MEMORY":
        yield "It was killed for memory: ask for more (`--mem`), or train with a smaller batch on each GPU (`--batch`)."
    elif last.ended_by == "NODE_FAIL":
        yield "It ended with a lost node: with `--requeue` and a checkpoint it would have gone on by itself."
    elif last.ended_by == "PREEMPTED":
        yield "It was preempted for good: with `--requeue`, where the site preempts by requeue, it would have gone on."
    elif last.ended_by == "FAILED":
        yield f"It failed ({last.ended_how or 'no exit code'}): the end of its output file says why."
    elif last.ended_by == "RUNAWAY":
        yield "Accounting never heard of its end: an administrator mends that with `sacctmgr show runawayjobs`."
    elif last.ended_by == "CANCELLED" and not figures.gpu_s and not ran_s:
        yield f"It was cancelled {last.ended_how} before it started.".replace("  ", " ")


def _of_losses(lost: Losses) -> list[str]:
    if not lost.held:
        return []
    remedies = {
        "lost_work": "was trained for nothing, for it went on from an older checkpoint: save more often",
        "restarting": "went into restarts: keep data and packages near the nodes so that it starts faster, or ask the "
        "site for fewer moves (`min_move_gap_s` in the site file)",
        "moving": "passed under orders to change size: short steps and a fast place for checkpoints make moves cheap",
        "bubbles": "its pipeline stood idle: `ones pipeline search` finds a schedule with fewer bubbles, or take more "
        "micro-batches",
        "large_batch": "was not worth it, for the batch was larger than its gradient can use: lower the upper end of "
        "`--batch`",
    }
    shares = sorted(((getattr(lost, cause) / lost.held, cause) for cause in remedies), reverse=True)
    return [
        f"{show_share(share)} of its GPU time {remedies[cause]}." for share, cause in shares if share > WORTH_SAYING
    ]


def _of_waits(job: JobHistory, figures: JobFigures) -> Iterator[str]:
    ran = [segment for segment in job.segments if segment.duration_s]
    if not ran:
        return
    lived_s = job.segments[-1].end_s - job.segments[0].submit_s
    elastic = len({segment.nnodes for segment in ran}) > 1 or any(segment.move for segment in ran)
    most = max(segment.nnodes for segment in ran)
    if figures.wait_s > lived_s / 2 and figures.wait_s > _SHORT_LIMIT_S / 4 and not elastic and most > 1:
        yield (
            f"It waited for {show_duration(figures.wait_s)} of {show_duration(lived_s)}: a job that may be smaller "
            f"starts sooner (`ones submit --nodes 1-{most}`)."
        )
    limit_s, longest_s = ran[-1].time_limit_s, max(segment.duration_s for segment in ran)
    if limit_s and limit_s > _SHORT_LIMIT_S and not ran[-1].open and longest_s < WORTH_SAYING * limit_s:
        yield (
            f"It used {show_duration(longest_s)} of a time limit of {show_duration(limit_s)}: with a shorter one "
            "(`--time`) the scheduler can start it in gaps."
        )
