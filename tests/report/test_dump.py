"""What somebody saved of sacct: columns in any order, separators in users' text, two dumps in one file."""

import pytest

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.report.dump import NEEDED, read_dump

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
