"""How far a job was over time: one report a minute, and the first and last of each generation whatever happens."""

from views import job, plan, view

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.wire import Progress


def told(tmp_path, *seen, prune_before_s=None):
    """The samples that the journal keeps of a job that was seen like this: (time, generation, samples) or None."""
    with Journal.open(tmp_path / "journal.db") as journal:
        journal.begin_run(Run(policy="equal", seed=1), 0.0)
        for number, (now_s, generation, samples) in enumerate(seen, 1):
            jobs = (
                [] if samples is None else [job("a", "c1", generation=generation, progress=Progress(samples=samples))]
            )
            journal.record(
                Tick(
                    tick=number,
                    now_s=float(now_s),
                    took_s=0.1,
                    view=view(*jobs, now_s=float(now_s)),
                    plan=plan(a=1),
                    memory=Memory(),
                    decisions=(),
                )
            )
        if prune_before_s is not None:
            journal.prune(prune_before_s)
        return [(point.at_s, point.samples) for point in journal.points("a")]


def test_a_report_a_minute_is_kept(tmp_path):
    seen = [(at_s, 1, 10 * at_s) for at_s in range(0, 200, 20)]
    assert told(tmp_path, *seen) == [(0, 0), (60, 600), (120, 1200), (180, 1800)]


def test_the_last_word_of_a_generation_and_of_a_job_is_kept(tmp_path):
    seen = [(0, 1, 0), (20, 1, 200), (40, 2, 150), (50, 2, 250), (60, 0, None)]
    assert told(tmp_path, *seen) == [(0, 0), (20, 200), (40, 150), (50, 250)]


def test_a_job_that_goes_back_to_a_checkpoint_says_from_where_to_where(tmp_path):
    seen = [(0, 1, 0), (20, 1, 200), (30, 1, 100), (40, 1, 200)]
    assert told(tmp_path, *seen) == [(0, 0), (20, 200), (30, 100)]


def test_a_job_that_stands_still_says_nothing_new(tmp_path):
    assert told(tmp_path, (0, 1, 5), (100, 1, 5), (200, 1, 5)) == [(0, 5)]


def test_after_years_the_ends_of_each_generation_are_still_there(tmp_path):
    seen = [(at_s, 1 + at_s // 300, at_s) for at_s in range(0, 600, 60)]
    assert told(tmp_path, *seen, prune_before_s=1e9) == [(0, 0), (240, 240), (300, 300), (540, 540)]
