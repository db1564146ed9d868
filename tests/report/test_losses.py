"""Where GPU time went: each cause by its definition, on stories whose sums can be done in the head."""

import numpy as np
import pytest
from accounting_rows import row

from ones_slurm.engine.records import MoveRow, Point
from ones_slurm.model.plan import Status
from ones_slurm.report.advice import advice
from ones_slurm.report.fairness import fairness
from ones_slurm.report.figures import job_figures
from ones_slurm.report.intervals import mean_interval
from ones_slurm.report.join import explained
from ones_slurm.report.losses import losses
from ones_slurm.report.samples import efficiency
from ones_slurm.report.segments import histories

C1, C2 = ("c1",), ("c1", "c2")


class Told:
    """What a journal says of job 1."""

    def __init__(self, moves=(), points=()):
        self._moves, self._points = moves, points

    def moves(self, job_id):
        return self._moves

    def holdings(self, job_id):
        return ()

    def points(self, job_id):
        return self._points


def move(kind, sent_s, ended_s, generation):
    return MoveRow(
        job_id="1", generation=generation, kind=kind, from_nodes=0, to_nodes=0, batch=64, sent_s=float(sent_s),
        outcome=Status.DONE, ended_s=float(ended_s), reason="", why="",
    )  # fmt: skip


def point(at_s, samples, batch=64, metrics="{}"):
    return Point(
        job_id="1", generation=1, at_s=float(at_s), samples=samples, samples_per_s=10.0, loss=None, batch=batch,
        base_batch=64, gpus=2, metrics=metrics,
    )  # fmt: skip


def history(*rows, now_s=1000, **told):
    (job,) = histories(rows, now_s=now_s)
    return explained(job, Told(**told))


ONCE = row(submit=0, start=100, end=1100, nodes=C1, gpus=2)


def test_without_a_journal_only_waits_and_clean_up_are_known():
    requeued = row(state="REQUEUED", submit=0, start=100, end=200, nodes=C2, gpus=4)
    again = row(submit=210, start=250, end=300, nodes=C1, gpus=2)
    lost = losses(history(requeued, again))
    assert (lost.waiting, lost.restarting) == (100 * 4 + 40 * 2, 10 * 4)
    assert lost.held == 100 * 4 + 10 * 4 + 50 * 2
    assert (lost.goodput, lost.moving, lost.told) == (None, 0, False)


def test_a_start_and_a_move_in_place_take_their_time():
    shrunk = row(state="RESIZING", submit=0, start=0, end=500, nodes=C2, gpus=4)
    rest = row(submit=500, start=0, end=1000, nodes=C1, gpus=2)
    job = history(shrunk, rest, moves=[move("start", 0, 30, 1), move("shrink", 480, 510, 2)])
    assert [(segment.startup_s, segment.moving_s, segment.move) for segment in job.segments] == [
        (30, 20, "start"),
        (0, 10, "shrink"),
    ]
    lost = losses(job)
    assert (lost.restarting, lost.moving) == (30 * 4, 20 * 4 + 10 * 2)
    assert lost.goodput == pytest.approx(1 - (120 + 100) / 3000)


def test_what_was_trained_twice_is_lost_once():
    crashed = row(state="NODE_FAIL", submit=0, start=0, end=100, nodes=C1, gpus=2)
    again = row(submit=100, start=100, end=200, nodes=C1, gpus=2)
    points = [point(10, 0), point(99, 900), point(110, 600), point(199, 1500)]
    job = history(crashed, again, points=points)
    assert [(segment.samples, segment.lost_samples) for segment in job.segments] == [(600, 300), (900, 0)]
    assert losses(job).lost_work == pytest.approx(200 * 300 / 900)


def test_a_job_that_goes_on_where_it_was_loses_nothing():
    requeued = row(state="REQUEUED", submit=0, start=0, end=100, nodes=C1, gpus=2)
    again = row(submit=100, start=100, end=200, nodes=C2, gpus=4)
    job = history(requeued, again, points=[point(10, 50), point(99, 900), point(130, 1000), point(199, 2000)])
    assert [(segment.samples, segment.lost_samples) for segment in job.segments] == [(900, 0), (1100, 0)]


def test_a_large_batch_and_bubbles_are_worth_less():
    assert efficiency(1.0, 3.0, 64, 64) == 1.0
    assert efficiency(1.0, 3.0, 64 * 5, 64) == (3 + 1) / (3 + 5)
    told = point(500, 100, batch=320, metrics='{"grad_sqr": 1.0, "grad_var": 3.0, "bubble": 0.25}')
    lost = losses(history(ONCE, points=[told]))
    assert lost.bubbles == pytest.approx(0.25 * 2000)
    assert lost.large_batch == pytest.approx(0.75 * 2000 * 0.5)
    assert lost.goodput == pytest.approx(0.375)


@pytest.mark.parametrize("metrics", ['{"grad_sqr": -1, "grad_var": 1}', '{"grad_sqr": 1e999}', '{"bubble": 7}'])
def test_what_a_job_says_wrongly_counts_for_nothing(metrics):
    lost = losses(history(ONCE, points=[point(500, 100, metrics=metrics)]))
    assert (lost.bubbles, lost.large_batch, lost.goodput) == (0, 0, 1)


def test_fairness_is_one_for_a_job_that_had_its_share():
    alone = history(row(submit=0, start=0, end=100, nodes=C1, gpus=2))
    assert fairness([alone], [(0.0, 100.0)], 2) == {("1", "user1"): pytest.approx(1.0)}
    late = history(row(submit=0, start=300, end=400, nodes=C1, gpus=2))
    assert fairness([late], [(0.0, 400.0)], 2)["1", "user1"] == pytest.approx(4.0)
    assert fairness([history(row(state="RUNNING", submit=0, start=0, nodes=C1, gpus=2))], [(0.0, 9.0)], 2) == {}


def test_an_interval_holds_the_mean_and_narrows_with_more_jobs():
    chance = np.random.default_rng(1)
    widths = []
    for size in (20, 200, 5000):
        mean, low, high = mean_interval(chance.exponential(100, size).tolist())
        assert low < mean < high
        widths.append(high - low)
    assert widths[0] > widths[1] > widths[2]
    assert mean_interval([5.0]) == (5.0, 5.0, 5.0)
    assert mean_interval([]) is None


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(state="TIMEOUT", submit=0, start=0, end=7200, nodes=C1, gpus=2)], "--time"),
        ([row(state="OUT_OF_MEMORY", submit=0, start=0, end=90, nodes=C1, gpus=2)], "--mem"),
        ([row(state="NODE_FAIL", submit=0, start=0, end=90, nodes=C1, gpus=2)], "--requeue"),
        ([row(state="FAILED", submit=0, start=0, end=90, nodes=C1, gpus=2, exit_status=3)], "(exit 3)"),
        ([row(state="CANCELLED", submit=0, end=90, cancelled_by="7")], "cancelled by 7 before it started"),
        ([row(submit=0, start=9000, end=9500, nodes=C2, gpus=4)], "ones submit --nodes 1-2"),
        ([row(submit=0, start=0, end=600, nodes=C1, gpus=2, time_limit_s=86400.0)], "shorter one (`--time`)"),
        (
            [
                row(state="REQUEUED", submit=0, start=0, end=100, nodes=C1, gpus=2),
                row(submit=190, start=190, end=300, nodes=C1, gpus=2),
            ],
            "went into restarts",
        ),
        ([row(submit=0, start=0, end=90, nodes=C1, gpus=2)], "Nothing was wasted"),
        ([row(state="RUNNING", submit=0, start=0, nodes=C1, gpus=2)], "It is not over"),
    ],
)
def test_advice_names_the_remedy(rows, says):
    job = history(*rows)
    said = advice(job, job_figures(job), losses(job))
    assert says in said[0]
    assert len(said) <= 2
