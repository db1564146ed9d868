"""Traces are other people's files: whatever is wrong with one is said with file, line and column."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.sim.rows import MAX_LINE_BYTES, BadRow
from ones_slurm.sim.synth import synthesise
from ones_slurm.sim.trace import Row, format_of, read_trace, write_trace
from ones_slurm.sim.workload import Choices, submissions, that_fit

POLLUX = "name,time,application,num_replicas,batch_size\n"
ELASTICFLOW = "job_id,submission_time,duration,num_gpu\n"


def file(folder: pathlib.Path, content: str | bytes) -> pathlib.Path:
    path = folder / "trace.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "name", "first"),
    [
        (
            POLLUX + "a,107,cifar10,6,2048\n",
            "pollux",
            Row(job_id="a", submit_s=107, gpus=6, application="cifar10", batch=2048, line=2),
        ),
        (
            ELASTICFLOW + "u-1,5010,1265,2\n",
            "elasticflow",
            Row(job_id="u-1", submit_s=5010, gpus=2, duration_s=1265, line=2),
        ),
        (
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
            "philly",
            Row(job_id="philly-2", submit_s=0, gpus=1, duration_s=66, partition="11cb48", line=2),
        ),
    ],
)
def test_published_formats_are_told_apart_by_their_headings(tmp_path, content, name, first):
    path = file(tmp_path, content)
    assert format_of(path) == name
    assert read_trace(path) == [first]


def test_windows_line_ends_a_byte_order_mark_and_blank_lines_do_not_matter(tmp_path):
    path = file(tmp_path, b"\xef\xbb\xbf" + (ELASTICFLOW + "a,0,10,1\n\nb,1,10,1\n").replace("\n", "\r\n").encode())
    assert [row.job_id for row in read_trace(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "the file is empty"),
        ("\n", "the file is empty"),
        (POLLUX, "there is no job in it"),
        ("name,time,application,num_replicas\n", ":1: .*column 'batch_size' is missing"),
        (POLLUX + "a,1,bert,0,12\n", ":2, column num_replicas: '0' cannot be read"),
        (POLLUX + "a,1,bert,1.5,12\n", ":2, column num_replicas"),
        (POLLUX + "a,-1,bert,1,12\n", ":2, column time"),
        (POLLUX + "a,nan,bert,1,12\n", ":2, column time"),
        (POLLUX + "a,9,bert,1,12\nb,8,bert,1,12\n", ":3, column time: 8 goes back behind 9"),
        (POLLUX + "a,1,bert,1,12\na,2,bert,1,12\n", ":3, column name: there are two jobs 'a'"),
        (POLLUX + "a,1,bert\n", ":2: 3 fields, and the heading has 5"),
        (ELASTICFLOW + "a,0,0,1\n", ":2, column duration"),
        (ELASTICFLOW + "a,0,\0,1\n", ":2: holds zero bytes"),
        (ELASTICFLOW.encode() + "训练,0,10,1\n".encode("gbk"), ":2, column 1: byte 3 is not UTF-8"),
        (ELASTICFLOW + "x" * (MAX_LINE_BYTES + 1), f":2: longer than {MAX_LINE_BYTES} bytes"),
    ],
)
def test_what_is_wrong_is_said_once_with_line_and_column(tmp_path, content, error):
    with pytest.raises(UsageError, match=error) as caught:
        read_trace(file(tmp_path, content))
    assert str(tmp_path) in caught.value.message


def test_gbk_is_recognised_and_the_way_out_is_shown(tmp_path):
    with pytest.raises(UsageError) as caught:
        read_trace(file(tmp_path, ELASTICFLOW.encode() + "训练,0,10,1\n".encode("gbk")))
    assert "iconv -f GBK -t UTF-8" in (caught.value.hint or "")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(NotFound, match="there is no file"):
        read_trace(tmp_path / "nowhere.csv")


def test_bad_rows_can_be_left_out_and_counted(tmp_path):
    bad: list[BadRow] = []
    rows = read_trace(file(tmp_path, ELASTICFLOW + "a,0,10,1\nb,1,ten,1\nc,2,10,1\n"), bad=bad.append)
    assert [row.job_id for row in rows] == ["a", "c"]
    assert [error.line for error in bad] == [3]


def test_a_job_larger_than_the_cluster_is_named_with_its_line(tmp_path):
    path = file(tmp_path, ELASTICFLOW + "a,0,10,1\nb,1,10,9\n")
    rows = read_trace(path)
    with pytest.raises(BadRow, match=":3, column GPUs: job b needs 9, and the cluster has 8"):
        that_fit(rows, lambda _: 8, path)
    left_out: list[BadRow] = []
    assert [row.job_id for row in that_fit(rows, lambda _: 8, path, left_out.append)] == ["a"]
    assert len(left_out) == 1


def test_an_application_without_profiles_or_without_a_name_we_know(tmp_path):
    with pytest.raises(UsageError, match="application bert needs its measured profiles"):
        submissions([Row(job_id="a", submit_s=0, gpus=1, application="bert")], Choices())
    with pytest.raises(UsageError, match="line 7: nothing is known of application 'alexnet'"):
        submissions([Row(job_id="a", submit_s=0, gpus=1, application="alexnet", line=7)], Choices())


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(
    str.strip
)


@given(st.lists(names.map(str.strip), min_size=1, max_size=20, unique=True), st.randoms())
def test_what_is_written_in_our_own_format_is_read_back(tmp_path_factory, ids, random):
    rows = [
        Row(
            job_id=job_id,
            submit_s=float(place),
            gpus=random.randint(1, 99),
            duration_s=random.randint(1, 9),
            line=place + 2,
        )
        for place, job_id in enumerate(ids)
    ]
    path = tmp_path_factory.mktemp("t") / "trace.csv"
    path.write_text("".join(write_trace(rows)), encoding="utf-8")
    assert read_trace(path) == rows


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail_otherwise_than_with_a_word_to_the_user(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("t") / "trace.csv"
    path.write_bytes(ELASTICFLOW.encode() + content)
    try:
        rows = read_trace(path)
    except UsageError as error:
        assert str(path) in error.message  # noqa: PT017
    else:
        assert rows


def test_a_made_trace_depends_on_its_seed_alone():
    mix = {"traced": 3.0, "bert-cola": 1.0}
    first = synthesise(100, hours=8, mix=mix, seed=4)
    assert first == synthesise(100, hours=8, mix=mix, seed=4)
    assert first != synthesise(100, hours=8, mix=mix, seed=5)
    assert len(first) == 100
    assert {row.application for row in first} == {"", "bert-cola"}
    assert [row.submit_s for row in first] == sorted(row.submit_s for row in first)


@pytest.mark.parametrize("arrivals", ["poisson", "uniform", "daily"])
def test_each_arrival_process_spreads_the_jobs_over_the_time(arrivals):
    rows = synthesise(500, hours=24, mix={"traced": 1}, arrivals=arrivals, seed=1)
    assert 20 * 3600 < rows[-1].submit_s < 28 * 3600
    if arrivals == "daily":
        noon = sum(6 * 3600 < row.submit_s < 18 * 3600 for row in rows)
        assert noon > 0.6 * len(rows)
