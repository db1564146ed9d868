"""What marks a companion, and how it is submitted."""

import pytest

from ones_slurm.model.companion import asked_for, companion_comment, companion_name, companion_of, sbatch_line
from ones_slurm.model.wire import Loan
from ones_slurm.model.wish import parse_wish

JOIN = ["/opt/env/bin/python", "/opt/env/bin/ones-run", "--join", "12", "--dir", "/home/u/my runs/12"]


def loan(**more):
    shape = {"job_id": "12", "restarts": 1, "generation": 5, "nodes": 2, "minutes": 90, "folder": "/home/u/runs/12"}
    return Loan(**(shape | more))


@pytest.mark.parametrize(
    ("comment", "base"),
    [
        ("ones:companion-of=12", "12"),
        ("charge:7 ones:companion-of=12_3 ones-submit:abc", "12_3"),
        ("ones:nodes=1-4", None),
        ("ones:companion-of=12x", None),
        ("xones:companion-of=12", None),
        ("", None),
        (None, None),
    ],
)
def test_a_companion_is_known_by_a_word_of_its_comment(comment, base):
    assert companion_of(comment) == base


def test_a_companion_keeps_the_sites_words_and_has_no_wish_of_its_own():
    comment = companion_comment("12", "charge:7; ones:nodes=1-4,batch=64-256 ones-submit:ab12 project=x")
    assert companion_of(comment) == "12"
    assert parse_wish(comment) is None
    assert "charge:7" in comment
    assert "project=x" in comment


def test_a_companions_name_says_for_what_it_was_asked():
    assert asked_for(companion_name("12_3", 1, 5)) == ("12_3", 1, 5)
    assert asked_for("my-training") is None


def test_a_companion_inherits_what_its_base_has():
    line = sbatch_line(loan(account="physics", qos="long", partition="gpu", gres="gpu:4", exclude=("c1", "c2")), JOIN)
    for option in (
        "--account=physics",
        "--qos=long",
        "--partition=gpu",
        "--gres=gpu:4",
        "--exclude=c1,c2",
        "--time=90",
    ):
        assert option in line
    assert line[-1] == "exec /opt/env/bin/python /opt/env/bin/ones-run --join 12 --dir '/home/u/my runs/12'"


@pytest.mark.parametrize(("minutes", "option"), [(0, "--time=1"), (1, "--time=1"), (None, "--time=UNLIMITED")])
def test_no_time_left_never_becomes_no_limit(minutes, option):
    assert option in sbatch_line(loan(minutes=minutes), JOIN)


def test_what_the_base_does_not_have_is_not_asked_for():
    line = " ".join(sbatch_line(loan(), JOIN))
    assert not any(word in line for word in ("--account", "--qos", "--gres", "--exclude", "--uid", "--export"))


def test_root_submits_as_the_user_without_its_own_environment():
    assert {"--uid=user1", "--export=PATH"} <= set(sbatch_line(loan(), JOIN, user="user1"))
