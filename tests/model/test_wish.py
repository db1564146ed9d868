"""A user's wish travels in the job comment; whatever stands there must never do harm."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.model.errors import UsageError
from ones_slurm.model.wish import Bounds, Wish, format_wish, parse_wish


def test_a_wish_is_read_from_among_the_sites_own_words():
    wish = parse_wish("project=astro42;ones:nodes=1-4,batch=64-4096 phase2")
    assert wish == Wish(nodes=Bounds(1, 4), batch=Bounds(64, 4096))


def test_a_comment_without_a_wish_means_a_rigid_job():
    assert parse_wish(None) is None
    assert parse_wish("") is None
    assert parse_wish("bones:nodes=3 for the museum") is None


def test_a_single_number_is_a_range_of_one():
    assert parse_wish("ones:batch=128") == Wish(batch=Bounds(128, 128))


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("ones:node=1-4", "did you mean nodes"),
        ("ones:nodes=four", "is not a number"),
        ("ones:nodes=4-1", "runs backwards"),
        ("ones:nodes=0-4", "at least 1"),
        ("ones:nodes=1-4,nodes=2", "twice"),
        ("ones:nodes=1-4,gpus=4-16", "both nodes and gpus"),
        ("ones:nodes=1-4 ones:batch=3", "more than one"),
        ("ones:", "does not know ''"),
        ("ones:nodes=1-99999999999999999999", "is not a number"),
        ("ones:nodes=１-４", "is not a number"),
    ],
)
def test_a_wrong_wish_is_answered_with_what_would_be_right(comment, says):
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        parse_wish(comment)


def test_gpus_become_whole_nodes_within_the_bounds():
    wish = parse_wish("ones:gpus=3-13")
    assert wish.node_bounds(asked_nodes=1, gpus_per_node=4) == Bounds(1, 3)


def test_gpus_that_no_whole_node_gives_are_refused():
    with pytest.raises(UsageError, match="no whole number of nodes"):
        parse_wish("ones:gpus=2-3").node_bounds(asked_nodes=1, gpus_per_node=4)


@given(st.text())
def test_any_comment_is_a_wish_or_none_or_a_clear_error(comment):
    with contextlib.suppress(UsageError):
        assert parse_wish(comment) is None or "ones:" in comment


bounds = st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)).map(lambda pair: Bounds(pair[0], sum(pair)))
wishes = st.builds(Wish, nodes=st.none() | bounds, batch=st.none() | bounds).filter(lambda w: w.nodes or w.batch)


@given(wishes)
def test_a_wish_survives_its_own_words(wish):
    assert parse_wish(f"charge=7 {format_wish(wish)} note") == wish
