"""Constants evolved on a site's own past, and adopted only when they win on what was not seen."""

import contextlib
import sqlite3

import msgspec
import pytest
from click.testing import CliRunner

from ones_slurm.cli.main import ones
from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import load_site
from ones_slurm.policy.ones.constants import DEFAULTS
from ones_slurm.sim.nodes import node_views
from ones_slurm.sim.synth import synthesise
from ones_slurm.sim.workload import Choices, submissions
from ones_slurm.study.setting import Setting
from ones_slurm.study.tuning import BOUNDS, CLEARLY, tune

SETTING = Setting(nodes=4)
# Never grows, shrinks at once and charges four times the price: nobody would want these.
BAD = msgspec.structs.replace(DEFAULTS, alpha=4.0, grow_below=0.3, shrink_gain=1.1)


def jobs(count, seed=1):
    rows = synthesise(count, hours=count / 30, mix={"resnet18-cifar10": 1.0, "bert-cola": 1.0}, seed=seed)
    return submissions(rows, Choices(elastic=True, largest=16))


def found(present, **more):
    return tune(jobs(36), node_views(SETTING.kinds), SETTING, present=present, **more)


def test_from_bad_constants_it_finds_better_ones_and_adopts_them():
    tuned = found(BAD, generations=2)
    assert tuned.adopted
    assert tuned.after_s < tuned.before_s * (1.0 - CLEARLY)
    assert tuned.constants != BAD
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(tuned.constants, name) <= high


def test_what_does_not_clearly_win_on_unseen_jobs_is_not_adopted():
    tuned = found(DEFAULTS, generations=0)
    assert not tuned.adopted
    assert tuned.constants == DEFAULTS
    assert tuned.after_s == tuned.before_s


def test_the_same_seed_finds_the_same():
    assert found(BAD, generations=1, seed=3) == found(BAD, generations=1, seed=3)


def test_a_few_jobs_are_no_ground_to_tune_on():
    with pytest.raises(UsageError, match="too few"):
        tune(jobs(10), node_views(SETTING.kinds), SETTING)


def test_a_policy_without_constants_cannot_be_tuned_for():
    with pytest.raises(UsageError, match="equal has no constants"):
        found(DEFAULTS, judge="equal")


# Never grows, shrinks at once and charges four times the price: nobody would want these.
SITE = """name = "here"
[policy]
name = "psrpt"
[policy.constants]
alpha = 4.0
grow_below = 0.3
grow_below_cheap = 0.3
shrink_gain = 1.1
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """The journal of a cluster that was run with bad constants."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text(SITE)
    mix = "alexnet-imagenet=1,resnet50-imagenet=1,bert-cola=1"
    called("trace", "synth", "--jobs", "60", "--hours", "3", "--mix", mix, "--largest", "16", "-o", "trace.csv")
    called("sim", "run", "trace.csv", "-P", "psrpt", "--whole-nodes", "--nodes", "4", *JOURNAL)
    return tmp_path


JOURNAL = ("--journal", "journal.sqlite")


def called(*words, code=0):
    done = CliRunner().invoke(ones, list(words))
    assert done.exit_code == code, done.output
    return done.stdout


def test_what_is_found_can_stand_at_the_end_of_a_site_file(recorded):
    words = ("--site", "site.toml", "sim", "tune", "--from", "journal.sqlite", "--generations", "2", "-o", "piece.toml")
    said = called(*words)
    assert "which the search had not seen" in said
    assert (recorded / "piece.toml").read_text() == said
    (recorded / "new.toml").write_text('name = "here"\n[policy]\nname = "psrpt"\n[costs]\nstart_s = 5\n' + said)
    assert load_site(recorded / "new.toml").policy.constants != load_site(recorded / "site.toml").policy.constants


def test_what_does_not_win_is_not_written(recorded):
    called("--site", "site.toml", "sim", "tune", "--from", "journal.sqlite", "--generations", "2", "-o", "good.toml")
    words = ("--site", "better.toml", "sim", "tune", "--from", "journal.sqlite", "--generations", "1", "-o", "no.toml")
    (recorded / "better.toml").write_text('[policy]\nname = "psrpt"\n' + (recorded / "good.toml").read_text())
    assert "the present constants stay" in called(*words)
    assert not (recorded / "no.toml").exists()


def test_a_past_without_elastic_jobs_says_what_to_do(recorded):
    (recorded / "sacct.txt").write_text(
        "JobID|State|Submit|Start|End|NodeList|AllocTRES\n"
        "1|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:00|2026-01-05T12:00:00|c1|gres/gpu=4,node=1\n"
    )
    done = CliRunner().invoke(ones, ["sim", "tune", "--from", "sacct.txt"])
    assert done.exit_code == 2
    assert "--assume 2" in done.stderr


def test_a_run_with_constants_replays_with_them_and_not_without(recorded):
    policy = "psrpt alpha=4.0 grow_below=0.3 grow_below_cheap=0.3 shrink_gain=1.1"
    called("sim", "run", "trace.csv", "-P", policy, "--whole-nodes", "--nodes", "4", "--journal", "with.sqlite")
    assert "all of them the same" in called("sim", "replay", "with.sqlite")
    with contextlib.closing(sqlite3.connect("with.sqlite")) as db, db:
        db.execute("update runs set policy = 'psrpt'")
    called("sim", "replay", "with.sqlite", code=1)
