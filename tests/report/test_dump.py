"""What somebody saved of sacct: columns in any order, separators in users' text, two dumps in one file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.report.dump import NEEDED, Saved, read_dump

HEADER = "JobID|JobName|State|Submit|Start|End|NodeList|AllocTRES|Comment"
ROW = "7|train|COMPLETED|2026-11-30T14:00:00|2026-11-30T14:00:10|2026-11-30T14:10:00|c[1-2]|gres/gpu=8,node=2|"


@pytest.fixture
def dump(tmp_path):
    def read(*lines):
        path = tmp_path / "rows.psv"
        path.write_text("\n".join(lines) + "\n")
        return read_dump(path)

    return read


def test_a_row_needs_only_a_few_columns(dump):
    (row,) = dump(HEADER, ROW).rows
    assert (row.job_id, row.raw_id, row.nodes, row.gpus, row.tres_nodes) == ("7", "7", ("c1", "c2"), 8, 2)
    assert row.end_s - row.start_s == 590


def test_steps_are_left_out(dump):
    assert (
        dump(HEADER, ROW, ROW.replace("7|", "7.batch|", 1), ROW.replace("7|", "7.0|", 1)).rows == dump(HEADER, ROW).rows
    )


@pytest.mark.parametrize("name", ["a|b", "a|b|c", "|", "a|COMPLETED"])
def test_a_separator_in_a_name_loses_no_row(dump, name):
    read = dump(HEADER, ROW.replace("train", name), ROW)
    assert ([row.name for row in read.rows], read.unreadable) == ([name, "train"], 0)
    assert read.rows[0].nodes == ("c1", "c2")


def test_a_separator_in_a_comment_loses_no_row(dump):
    (row,) = dump(HEADER, ROW + "ones:nodes=1-4|mine").rows
    assert (row.name, row.comment) == ("train", "ones:nodes=1-4|mine")


def test_lines_that_are_no_rows_are_counted(dump):
    read = dump(HEADER, "rubbish", ROW.replace("2026-11-30T14:00:00", "soon"), ROW, HEADER, ROW)
    assert (len(read.rows), read.unreadable) == (2, 2)


def test_a_trailing_separator_is_fine(dump):
    assert dump(HEADER + "|", ROW + "|").rows == dump(HEADER, ROW).rows


def test_a_file_without_the_columns_is_refused_with_the_command_that_makes_one(dump):
    with pytest.raises(UsageError, match="names no column NodeList") as refused:
        dump("JobID|State|Submit|Start|End", "7|COMPLETED|||")
    assert "sacct -D -P" in refused.value.hint
    assert all(name in refused.value.hint for name in NEEDED)


def test_no_file_and_an_empty_file(tmp_path, dump):
    with pytest.raises(NotFound):
        read_dump(tmp_path / "nothing")
    with pytest.raises(UsageError):
        dump("")


DATA = Path(__file__).parent / "data"
WHOLE = (DATA / "sacct-26.05.5.psv").read_bytes()


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(WHOLE)))
def test_a_file_that_breaks_off_anywhere_gives_all_whole_rows_and_counts_the_rest(tmp_path_factory, size):
    path = tmp_path_factory.mktemp("cut") / "rows.psv"
    path.write_bytes(WHOLE[:size])
    begun = WHOLE[:size].splitlines()[1:]
    whole = WHOLE[:size].count(b"\n") - 1
    if whole < 0:
        return  # not even its first line is there
    saved = Saved(path)
    assert whole <= len(list(saved)) + saved.unreadable <= len(begun)


def test_line_breaks_in_users_text_lose_no_row(dump):
    broken = ROW.replace("train", "a name\nof two lines") + "ones:nodes=1-2\n--wrap\n\nof four"
    read = dump(HEADER, ROW, broken, ROW)
    assert [row.name for row in read.rows] == ["train", "a name\nof two lines", "train"]
    assert (read.unreadable, read.rows[1].nodes) == (2, ("c1", "c2")), (
        "what follows a last column is taken for lines of its own"
    )


def test_rows_of_another_cluster_are_left_out_and_named(tmp_path):
    path = tmp_path / "rows.psv"
    path.write_text("\n".join([f"Cluster|{HEADER}", f"a|{ROW}", f"b|{ROW}", f"a|{ROW}"]) + "\n")
    saved = Saved(path)
    assert len(list(saved)) == 2
    assert saved.lost == ["1 rows of cluster b are left out"]


def test_json_that_breaks_off_gives_the_jobs_before(tmp_path):
    path, text = tmp_path / "rows.json", (DATA / "sacct-26.05.5.json").read_bytes()
    path.write_bytes(text[:-700])
    saved = Saved(path)
    assert [row.job_id for row in saved] == ["1", "1", "9", "9"]
    assert saved.lost[0].startswith("1 lines are no rows of sacct and are not counted")
    path.write_text('{"jobs": "none"}')
    with pytest.raises(UsageError, match="no answer of sacct"):
        list(Saved(path))


LINES = WHOLE.decode().splitlines()


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.integers(1, len(LINES) - 1), st.text(max_size=80), min_size=1, max_size=5))
def test_lines_that_are_overwritten_with_anything_spoil_no_other(tmp_path_factory, spoilt):
    path = tmp_path_factory.mktemp("spoilt") / "rows.psv"
    lines = [spoilt.get(number, line) for number, line in enumerate(LINES)]
    path.write_bytes("\n".join(lines).encode(errors="replace"))
    intact = [tuple(line.split("|")[:2]) for number, line in enumerate(LINES) if number and number not in spoilt]
    found = [(row.job_id, row.raw_id) for row in Saved(path)]
    assert not set(intact) - set(found)
    assert len(found) >= len(intact)
