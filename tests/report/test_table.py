"""The report as text: nothing is cut, nothing can be smuggled in, and every form says the same."""

import io

import pytest
from accounting_rows import row
from rich.console import Console

from ones_slurm.model.errors import UsageError
from ones_slurm.report.as_json import report_values
from ones_slurm.report.columns import chosen
from ones_slurm.report.segment_columns import COLUMNS
from ones_slurm.report.segments import histories
from ones_slurm.report.shown import show_duration, show_time
from ones_slurm.report.table import on_terminal, parsable, plain


def jobs():
    rows = [
        row("12", state="RESIZING", submit=0, start=20, end=3620, nodes=("c1", "c2", "c3"), gpus=12),
        row("12", submit=3620, start=20, end=7220, nodes=("c1",), gpus=4),
        row("13", state="PENDING", submit=0, name="evil|name\x1b[2J\n"),
    ]
    return histories(rows, now_s=10_000)


def test_plain_text_has_a_line_for_each_job_and_segment_and_the_totals():
    lines = list(plain(jobs(), chosen("seg,wait,nodes,gpus,gpuhours,ended-by")))
    assert lines == [
        "  SEG      WAIT  NODES  GPUS  GPU-HOURS  ENDED-BY",
        "JOB 12  train  user1  acc  v100  COMPLETED, completed in 02:00:20, waited 00:00:20, 1 move, "
        "16.000 GPU-hours, restarts cost 0.000 GPU-hours",
        "    1  00:00:20      3    12     12.000  RESIZED",
        "    2  00:00:00      1     4      4.000  COMPLETED",
        f"JOB 13  evil|name?[2J?  user1  acc  v100  PENDING, submitted {show_time(0)}, waited 02:46:40, 0 moves, "
        "0.000 GPU-hours, restarts cost 0.000 GPU-hours",
        "    1  02:46:40      0     0      0.000  PENDING",
        "TOTAL  2 jobs, 1 finished in 02:00:20 on average, waited 02:47:00, 1 move, "
        "16.000 GPU-hours, restarts cost 0.000 GPU-hours",
    ]


def test_parsable_lines_have_every_column_and_no_stray_separator():
    header, *lines = parsable(jobs())
    assert header.split("|") == [column.title for column in COLUMNS]
    assert len(lines) == 3
    assert {len(line.split("|")) for line in lines} == {len(COLUMNS)}
    assert dict(zip(header.split("|"), lines[0].split("|"), strict=True))["NODELIST"] == "c[1-3]"


def test_a_width_that_is_asked_for_cuts_as_slurm_does():
    assert list(plain(jobs(), chosen("endedby%5,seg")))[3].startswith("  COMP+")


def test_json_has_each_column_of_a_segment_and_exact_sums():
    report = report_values(jobs())
    values = report["jobs"][0]
    assert (report["version"], report["totals"]["gpuhours"]) == (1, 16.0)
    assert values["gpu_s"] == 12 * 3600 + 4 * 3600
    first = values["segments"][0]
    assert (first["nodes"], first["nodelist"], first["gpu_s"], first["gpuhours"]) == (3, "c[1-3]", 43200, 12.0)
    assert {column.key for column in COLUMNS} <= values.keys() | first.keys()


def test_on_a_narrow_terminal_nothing_is_lost():
    screen = io.StringIO()
    lines = plain(jobs(), chosen("seg,start,endedby"))
    on_terminal(Console(file=screen, width=60, force_terminal=True), lines)
    assert "COMPLETED" in screen.getvalue()
    assert f"{show_time(20)}  RESIZED" in screen.getvalue().replace("\x1b[0m", "")
    assert "\x1b[2J" not in screen.getvalue()


@pytest.mark.parametrize("format_", ["", "seg,nosuch", "seg%wide", "seg%%3"])
def test_an_unknown_column_is_answered_with_all_there_are(format_):
    with pytest.raises(UsageError, match="no column") as refused:
        chosen(format_)
    assert all(column.key in refused.value.hint for column in COLUMNS)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "00:00:00"), (3725, "01:02:05"), (200_000, "2-07:33:20"), (None, "-")]
)
def test_durations_look_as_in_sacct(seconds, shown):
    assert show_duration(seconds) == shown
