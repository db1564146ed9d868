"""What a site file says of the adoption ladder, and how it answers to what is wrong in it."""

import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest
import toml
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.model.adoption import Adoption, Rung, parse_window
from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import load_site
from ones_slurm.model.wish import Bounds, Wish

BERLIN = ZoneInfo("Europe/Berlin")


def test_the_most_cautious_word_wins_and_the_default_is_for_those_of_whom_nobody_speaks():
    site = Adoption(
        mode=Rung.OBSERVE,
        partitions={"gpu": "act", "debug": "advise"},
        accounts={"physics": "observe"},
        users={"alice": "off", "bob": "act"},
    )
    assert site.rung("cpu", "", "carol") == (Rung.OBSERVE, "the whole site")
    assert site.rung("gpu", "chemistry", "carol") == (Rung.ACT, "partition gpu")
    assert site.rung("cpu", "chemistry", "bob") == (Rung.ACT, "user bob")
    assert site.rung("gpu", "physics", "bob") == (Rung.OBSERVE, "account physics")
    assert site.rung("gpu", "physics", "alice") == (Rung.OFF, "user alice")
    assert site.rung("gpu,debug", "", "carol") == (Rung.ADVISE, "partition debug")


def at(text, fold=0):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        ("Mon 08:00-09:00", ["2026-11-30T08:00", "2026-11-30T08:59"], ["2026-11-30T09:00", "2026-12-01T08:30"]),
        ("Fri-Sun 22:00-02:00", ["2026-12-05T01:59", "2026-12-07T01:00"], ["2026-12-04T01:00", "2026-12-07T02:00"]),
        ("12:00-13:00", ["2026-12-02T12:30"], ["2026-12-02T13:00"]),
        ("Sat 00:00-24:00", ["2026-12-05T00:00", "2026-12-05T23:59"], ["2026-12-06T00:00"]),
        # The clock goes forward on 29 March at 2 and back on 25 October at 3; eight in the morning stays eight.
        ("Sun 08:00-09:00", ["2026-03-29T08:30", "2026-10-25T08:30"], ["2026-03-29T07:59", "2026-10-25T09:00"]),
    ],
)
def test_a_quiet_window_is_read_off_the_wall(window, inside, outside):
    site = Adoption(quiet=(window,))
    assert [site.quiet_window(at(moment), BERLIN) for moment in inside] == [window] * len(inside)
    assert [site.quiet_window(at(moment), BERLIN) for moment in outside] == [""] * len(outside)


def test_the_hour_that_comes_twice_is_quiet_twice():
    site = Adoption(quiet=("Sun 02:00-03:00",))
    first, second = at("2026-10-25T02:30"), at("2026-10-25T02:30", fold=1)
    assert second - first == 3600
    assert site.quiet_window(first, BERLIN) and site.quiet_window(second, BERLIN)  # noqa: PT018


def test_without_a_zone_it_is_the_clock_of_this_host():
    now = datetime.datetime(2026, 11, 30, 8, 30)
    assert Adoption(quiet=("Mon 08:00-09:00",)).quiet_window(now.timestamp())


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"users": {"alice": "acT"}}, r"users\.'alice' = 'acT' .*did you mean 'act'"),
        ({"users": {"alice": "\x1b[31m" * 30}}, r"the rungs are off, observe, advise, act"),
        ({"mode": "go"}, r"adoption\.mode"),
        ({"user": {}}, "did you mean 'users'"),
        ({"max_moves_per_job_hour": -1}, "max_moves_per_job_hour"),
        ({"quiet": ["Mno 08:00-09:00"]}, r"'Mno' is no day; did you mean 'Mon'"),
        ({"quiet": ["Mon 08:00-25:00"]}, "'25:00' is no time between"),
        ({"quiet": ["Mon 8-9"]}, "'8' is no time.*Mon 08:00-09:00"),
        ({"quiet": ["Mon 08:00-08:00"]}, "is empty"),
        ({"quiet": ["mondays"]}, "no time of the week"),
        ({"quiet": ["Mon ٠٨:00-09:00"]}, "is no time"),
        ({"quiet": "Mon 08:00-09:00"}, r"adoption\.quiet"),
    ],
)
def test_a_wrong_word_is_named_with_a_right_one(tmp_path, table, says):
    path = tmp_path / "site.toml"
    path.write_text(toml.dumps({"adoption": table}))
    with pytest.raises(UsageError, match=says) as caught:
        load_site(path)
    assert "\x1b" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_window_or_is_refused_with_an_example(text):
    try:
        window = parse_window(text)
    except ValueError as error:
        said = str(error)
    else:
        said = "08:00"
        assert any(window.holds(day, minute // 60, minute % 60) for day in range(7) for minute in range(1440))
    assert "08:00" in said


@pytest.mark.parametrize(
    ("wish", "least", "bounds"),
    [
        (Wish(nodes=Bounds(1, 8)), 2, Bounds(2, 8)),
        (Wish(nodes=Bounds(3, 8)), 2, Bounds(3, 8)),
        (Wish(nodes=Bounds(1, 4)), 9, Bounds(4, 4)),
        (Wish(gpus=Bounds(2, 16)), 2, Bounds(2, 4)),
        (Wish(), 1, Bounds(4, 4)),
        (Wish(pipeline="p", devices=8, replicas=Bounds(1, 4)), 3, Bounds(4, 8, 2)),
        (Wish(pipeline="p", devices=2, replicas=Bounds(1, 8)), 3, Bounds(3, 4)),
    ],
)
def test_the_lower_end_of_a_wish_can_be_raised_and_not_beyond_its_upper_one(wish, least, bounds):
    assert wish.at_least(least, 4, 4).node_bounds(4, 4) == bounds


def test_what_is_read_is_what_was_written():
    site = Adoption(partitions={"gpu": "advise"}, quiet=("Mon 08:00-09:00",), never_below_nodes=2)
    assert msgspec.convert(msgspec.to_builtins(site), Adoption) == site
