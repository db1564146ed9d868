"""`ones report --by`, `ones eff` and ledgers that are kept, as people and scripts call them."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ones_slurm.cli import report as report_module
from ones_slurm.cli.main import ones
from ones_slurm.report.columns import GROUP_COLUMNS, JOB_COLUMNS
from ones_slurm.report.segment_columns import COLUMNS

DUMP = Path(__file__).parent / "data" / "sacct-26.05.5.psv"


def run(*words):
    return CliRunner().invoke(ones, [str(word) for word in words], prog_name="ones")


def lines(*words):
    done = run("report", "--from", DUMP, "-P", *words)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_jobs_in_a_table():
    assert lines("--by", "job", "-j", "9,10", "-o", "jobid,state,completion,gpuhours,restart,moves") == [
        "JOBID|STATE|COMPLETION|GPU-HOURS|RESTART|MOVES",
        "9|CANCELLED|00:00:55|0.034|0.047|2",
        "10|CANCELLED|00:00:19|0.012|0.000|3".replace("0.012", f"{(25 + 4 + 3 + 12) / 3600:.3f}"),
    ]


@pytest.mark.parametrize(("by", "key"), [("user", "user1"), ("account", "acc"), ("partition", "v100")])
def test_sums_are_those_of_the_jobs(by, key):
    jobs = json.loads(run("report", "--from", DUMP, "--json").stdout)["totals"]
    told = json.loads(run("report", "--from", DUMP, "--by", by, "--json").stdout)
    (row,) = told["rows"]
    assert (told["version"], told["by"], row["by"], row["share"]) == (1, by, key, 1.0)
    assert row["gpuhours"] == pytest.approx(jobs["gpuhours"])
    assert row["restart"] == pytest.approx(jobs["restart"])
    assert (row["jobs"], row["finished"], row["moves"], row["wait"]) == (
        jobs["jobs"],
        jobs["finished"],
        jobs["moves"],
        jobs["wait_s"],
    )
    assert row["low"] <= row["completion"] <= row["high"]


def test_a_day_counts_only_what_lies_in_it():
    whole, part = lines("--by", "day", "-o", "by,gpuhours"), lines("--by", "day", "-S", "2026-11-30T14:44:00")
    assert whole[1].startswith("2026-11-30|")
    assert float(part[1].split("|")[7]) < float(whole[1].split("|")[1])


def test_of_many_jobs_the_sums_are_told_unless_somebody_asks_for_all(monkeypatch):
    monkeypatch.setattr(report_module, "MOST_TOLD", 3)
    assert run("report", "--from", DUMP).stdout.split()[0] == "BY"
    assert run("report", "--from", DUMP, "--by", "segment").stdout.split()[0] == "SEG"
    assert lines()[0].startswith("JOBID|"), "what scripts get does not depend on how much there is"


def test_columns_are_explained_and_mean_the_same_everywhere():
    told = " ".join(run("report", "--helpformat").stdout.split())
    every = (*COLUMNS, *JOB_COLUMNS, *GROUP_COLUMNS)
    assert all(f"{column.key} {column.what}" in told for column in every)
    titles = {}
    for column in every:
        assert titles.setdefault(column.key, column.title) == column.title


def test_a_kept_ledger_answers_without_the_file(tmp_path):
    kept, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.psv"
    copy.write_bytes(DUMP.read_bytes())
    first = run("report", "--from", copy, "--ledger", kept, "--by", "job")
    copy.unlink()
    again = run("report", "--ledger", kept, "--by", "job", "-S", "2026-11-30", "-a")
    assert (first.exit_code, again.exit_code, again.stdout) == (0, 0, first.stdout)
    assert run("report", "--ledger", tmp_path / "none").exit_code == 5


def test_what_could_not_be_read_is_said_each_time(tmp_path):
    broken = tmp_path / "broken.psv"
    broken.write_bytes(DUMP.read_bytes() + b"half a ro")
    for _ in range(2):
        done = run("report", "--from", broken, "--ledger", tmp_path / "kept", "-a", "-S", "2026-11-30")
        assert "broken.psv: 1 lines are no rows of sacct and are not counted, such as 'half a ro'" in done.stderr


def test_eff_tells_what_a_job_used_and_what_helps():
    done = run("eff", "9", "--from", DUMP)
    assert done.exit_code == 0, done.stderr
    told = dict(line.split(None, 1) for line in done.stdout.splitlines() if line.strip())
    assert told["GPUs"] == "4 to 10"
    assert told["restarting"] == "0.047  57.5%"
    assert done.stdout.rstrip().endswith("(`min_move_gap_s` in the site file).")
    (row,) = json.loads(run("eff", "9", "--from", DUMP, "--json").stdout)["rows"]
    assert (row["jobid"], row["moves"], len(row["advice"])) == ("9", 2, 1)


USED = """JobID|State|Submit|Start|End|NodeList|NNodes|NCPUS|NTasks|AllocTRES|ReqMem|TotalCPU|MaxRSS|TRESUsageInTot
5|COMPLETED|2026-11-30T10:00:00|2026-11-30T10:00:00|2026-11-30T11:00:00|c[1-2]|2|16||gres/gpu=8,node=2|64G|02:00:00||
5.batch|COMPLETED|2026-11-30T10:00:00|2026-11-30T10:00:00|2026-11-30T11:00:00|c1|1|8|1|node=1||00:10.000|40M|mem=40M
5.0|COMPLETED|2026-11-30T10:00:10|2026-11-30T10:00:10|2026-11-30T11:00:00|c[1-2]|2|16|2|node=2||01:59:50|4G|mem=8G
"""


def test_eff_tells_cpu_and_memory_of_a_file_that_has_them(tmp_path):
    dump = tmp_path / "sacct.psv"
    dump.write_text(USED)
    page = run("eff", "5", "--from", dump).stdout
    assert "CPU           02:00:00, 12.5% of 16:00:00 of core time" in page
    assert "memory        at most 8.0 GiB in step 0, 12.5% of the 64.0 GiB asked for" in page
    assert "with less (`--mem`)" in page
    (row,) = json.loads(run("eff", "5", "--from", dump, "--json").stdout)["rows"]
    assert row["use"] == {
        "cpu_s": 7200.0,
        "core_s": 57600,
        "complete": True,
        "held_s": 3600,
        "memory_mib": 8192.0,
        "asked_mib": 65536.0,
        "step": "0",
        "cpu_efficiency": 0.125,
        "memory_efficiency": 0.125,
    }


def test_eff_says_where_cpu_and_memory_would_have_to_be_told(tmp_path):
    assert "the file does not tell them: TotalCPU" in run("eff", "9", "--from", DUMP).stdout
    assert run("report", "--from", DUMP, "--ledger", tmp_path / "kept", "-a").exit_code == 0
    assert "a ledger does not keep them" in run("eff", "9", "--ledger", tmp_path / "kept").stdout


def test_eff_of_no_job_is_exit_code_5_and_of_too_many_a_hint():
    assert run("eff", "999", "--from", DUMP).exit_code == 5
    assert run("eff").exit_code == 2


def test_the_options_of_the_report_are_these():
    """A change here is a change for every script that calls us."""
    context = click.Context(ones)
    report = ones.get_command(context, "report")
    found = [max(param.opts, key=len) for param in report.get_params(click.Context(report))]
    assert set(found) == {
        "--account", "--allusers", "--by", "--endtime", "--format", "--from", "--help", "--helpformat", "--html",
        "--journal", "--json", "--jobs", "--ledger", "--parsable", "--partition", "--starttime", "--user",
    }  # fmt: skip
