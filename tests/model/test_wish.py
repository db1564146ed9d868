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
        ("ones:pipeline=p.json", "not how many replicas"),
        ("ones:replicas=1-4", "replicas without a pipeline"),
        ("ones:devices=4,batch=8", "devices without a pipeline"),
        ("ones:pipeline=p.json,replicas=1-4,nodes=1-4", "both nodes and a pipeline"),
        ("ones:pipeline=p.json,replicas=1-4,gpus=4", "both gpus and a pipeline"),
        ("ones:pipeline=,replicas=1-4", "names no file"),
        ("ones:pipeline=p.json,replicas=0-4", "at least 1"),
        ("ones:pipeline=p.json,replicas=many", "is not a number"),
        ("ones:pipeline=p.json,devices=2-4,replicas=1", "is a range"),
        ("ones:pipeline=p.json,devices=0,replicas=1", "at least 1"),
        ("ones:pipeline=p.json,replica=1-4", "did you mean replicas"),
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


def test_a_pipeline_names_its_file_and_grows_by_replicas():
    wish = parse_wish("ones:pipeline=runs/gpt=2.json,replicas=1-8,batch=64-512 charge=7")
    assert wish == Wish(pipeline="runs/gpt=2.json", replicas=Bounds(1, 8), batch=Bounds(64, 512))
    assert parse_wish(format_wish(wish)) == wish


@pytest.mark.parametrize(
    ("devices", "gpus_per_node", "nodes"),
    [
        (4, 4, Bounds(1, 6)),
        (8, 4, Bounds(2, 12, 2)),  # two nodes a replica
        (2, 4, Bounds(1, 3)),  # two replicas a node
        (4, 0, Bounds(4, 24, 4)),  # nobody said: one GPU a node
    ],
)
def test_replicas_take_as_few_nodes_as_possible(devices, gpus_per_node, nodes):
    wish = Wish(pipeline="p.json", devices=devices, replicas=Bounds(1, 6))
    assert wish.node_bounds(asked_nodes=1, gpus_per_node=gpus_per_node) == nodes


def test_before_its_devices_are_known_a_pipeline_keeps_the_size_that_was_asked_for():
    assert parse_wish("ones:pipeline=p.json,replicas=1-8").node_bounds(3, 4) == Bounds(3, 3)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ("ones:pipeline=p.json,devices=3,replicas=1-4", "do not divide each other"),
        ("ones:pipeline=p.json,devices=1,replicas=1-3", "a node holds 4 replicas"),
    ],
)
def test_replicas_that_nodes_cannot_hold_are_refused(wish, says):
    with pytest.raises(UsageError, match=says):
        parse_wish(wish).node_bounds(asked_nodes=1, gpus_per_node=4)


def test_sizes_in_steps():
    sizes = Bounds(2, 12, 2)
    assert [size for size in range(15) if size in sizes] == [2, 4, 6, 8, 10, 12]
    assert [sizes.clamp(size) for size in (1, 2, 3, 7, 12, 99)] == [2, 2, 2, 6, 12, 12]


bounds = st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)).map(lambda pair: Bounds(pair[0], sum(pair)))
plain = st.builds(Wish, nodes=st.none() | bounds, batch=st.none() | bounds).filter(lambda w: w.nodes or w.batch)
files = st.text("abcXYZ019._/=-", min_size=1, max_size=30)
pipelines = st.builds(Wish, pipeline=files, devices=st.integers(0, 64), replicas=bounds, batch=st.none() | bounds)
wishes = plain | pipelines


@given(wishes)
def test_a_wish_survives_its_own_words(wish):
    assert parse_wish(f"charge=7 {format_wish(wish)} note") == wish
