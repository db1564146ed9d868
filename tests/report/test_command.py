"""`ones report` as people and scripts call it, on dumps of three releases."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ones_slurm.cli.main import ones
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Outcome, Plan, Shrink, Status
from ones_slurm.report.columns import JOB_COLUMNS
from ones_slurm.report.dump import read_dump
from ones_slurm.report.segment_columns import COLUMNS

DATA = Path(__file__).parent / "data"
DUMP = DATA / "sacct-22.05.8.psv"
LOSSES = {"lwaiting", "lmoving", "lrestarting", "llostwork", "lbubbles", "llargebatch"}


def report(*options, dump=DUMP):
    return CliRunner().invoke(ones, ["report", "--from", str(dump), *options], prog_name="ones")


def test_a_job_is_told_in_a_line_each_size_and_the_totals():
    result = report("-j", "15")
    assert result.exit_code == 0
    titles, job, *segments, total = result.stdout.splitlines()
    assert " ".join(titles.split()) == "SEG START END WAIT NODES GPUS BATCH GPU-HOURS RESTART ENDED-BY MOVE REASON"
    assert job.startswith("JOB 15  base.sh  user1  acc  v100  CANCELLED, completed in 00:00:15")
    assert [line.split()[4:6] for line in segments] == [["4", "4"], ["3", "3"], ["1", "1"]]
    assert total.startswith("TOTAL  1 job, 1 finished")


def test_scripts_get_every_field_of_every_segment():
    header, *lines = report("-P", "-u", "user1").stdout.splitlines()
    assert header.split("|") == [column.title for column in COLUMNS]
    assert len(lines) == len(read_dump(DUMP).rows)


def test_json_says_the_same_and_has_a_version():
    told = json.loads(report("--json", "-j", "10,15").stdout)
    assert (told["version"], [job["jobid"] for job in told["jobs"]]) == (1, ["10", "15"])
    assert told["totals"]["gpu_s"] == (8 * 7 + 4 * 1 + 12 * 9) + (4 * 5 + 3 * 5 + 1 * 4)
    assert told["totals"]["restart_gpu_s"] == 8 * 5 + 4 * 5


def test_columns_can_be_chosen():
    assert report("-j", "9", "-o", "jobid,endedby%10", "-P").stdout.splitlines() == ["JOBID|ENDED-BY", "9|MERGED"]


def test_a_job_stands_for_its_tasks_and_components():
    told = json.loads(report("--json", "-j", "11,13").stdout)
    assert [job["jobid"] for job in told["jobs"]] == ["11+0", "11+1", "13_[1-3%1]"]


def test_odd_rows_are_named_on_stderr():
    result = report("-j", "1", dump=DATA / "sacct-26.05.5.psv")
    assert "job 1: the row of Submit 2026-11-30T14:40:49 held 4 nodes while its AllocTRES tells of 3" in result.stderr
    assert "TRES" not in result.stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["-u", "nobody-here"], 5, "no job is found"),
        (["-S", "now"], 5, "-S now-7days"),
        (["-S", "someday"], 2, "for example now-7days"),
        (["-S", "14:00", "-E", "13:00"], 2, "lies before"),
        (["-o", "colour"], 2, "the columns are jobid"),
        (["--journal", "/no/such/journal"], 5, "/no/such/journal"),
    ],
)
def test_mistakes_are_answered_with_what_would_be_right(options, code, says):
    result = report(*options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr


def test_a_dump_that_is_none(tmp_path):
    (tmp_path / "x").write_text("hello\n")
    result = report(dump=tmp_path / "x")
    assert (result.exit_code, "sacct -D -P" in result.stderr) == (2, True)


def test_the_journal_tells_batches_and_reasons(tmp_path):
    resized_s = read_dump(DUMP).rows[-1].submit_s  # job 16, shrunk at 14:38:22
    shrink = Shrink(job_id="16", generation=1, keep=("c5",), batch=96, reason="job 17 waits")
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        journal.begin_run(Run(policy="equal", seed=1), resized_s)
        journal.record(
            Tick(
                tick=1,
                now_s=resized_s - 3,
                took_s=0.0,
                view=ClusterView(resized_s - 3, (), ()),
                plan=Plan(),
                memory=Memory(),
                decisions=(Decision(job_id="16", reason="job 17 waits", action=shrink),),
            )
        )
        journal.end(Outcome("16", 1, Status.DONE), resized_s + 1)
    told = report("-j", "16", "-P", "-o", "seg,batch,move,reason", "--journal", str(tmp_path / "journal.sqlite"))
    assert told.stdout.splitlines()[1:] == ["1|-|-|-", "2|96|shrink|job 17 waits"]


def test_help_explains_every_column():
    told = " ".join(CliRunner().invoke(ones, ["report", "--help"]).stdout.split())
    assert all(f"{column.key} {column.what}" in told for column in COLUMNS)


def test_the_guide_explains_every_column():
    guide = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    of_segments, of_losses = guide.partition("## Columns")[2].split("## Where GPU time goes")
    told = [
        [line.split("`")[1] for line in part.splitlines() if line.startswith("| `")]
        for part in (of_segments, of_losses)
    ]
    assert told[0] == [column.title for column in COLUMNS]
    assert told[1] == [column.title for column in JOB_COLUMNS if column.key in LOSSES]
    assert all(f"`{title}`" in of_losses for title in ("GOODPUT", "RHO", "LOW", "HIGH", "USE"))
