# ruff: noqa: E501 -- rows of sacct are as long as they are
"""`ones sim` and `ones trace` as people type them."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ones_slurm.cli.main import ones
from ones_slurm.slurm.accounting import columns
from ones_slurm.slurm.releases import Release

TRACE = """job_id,submission_time,duration,num_gpu
a,0,100,4
b,10,50,4
c,20,10,9
"""
# As sacct writes it: an elastic job that was requeued and grew, an array task, a job without GPUs, one that waits.
SACCT = """JobID|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|NodeList|NNodes|NCPUS|AllocTRES|Timelimit|Comment|SubmitLine|JobIDRaw|ExitCode
10|ada|acc|gpu|train|REQUEUED|2026-01-05T10:00:00|2026-01-05T10:00:00|2026-01-05T10:00:10|2026-01-05T10:30:10|c1|1|8|cpu=8,gres/gpu=4,node=1|1-00:00:00|ones:nodes=1-4||10|0:0
10|ada|acc|gpu|train|COMPLETED|2026-01-05T10:30:12|2026-01-05T10:32:12|2026-01-05T10:32:12|2026-01-05T11:32:12|c[1-2]|2|16|cpu=16,gres/gpu=8,node=2|1-00:00:00|ones:nodes=1-4||10|0:0
11_1|bob|acc|gpu|sweep|COMPLETED|2026-01-05T10:05:00|2026-01-05T10:05:00|2026-01-05T10:05:05|2026-01-05T12:05:05|c3|1|8|cpu=8,gres/gpu=4,node=1|UNLIMITED|||12|0:0
13|eve|acc|cpu|prep|COMPLETED|2026-01-05T10:06:00|2026-01-05T10:06:00|2026-01-05T10:06:00|2026-01-05T10:16:00|c4|1|8|cpu=8,node=1|01:00:00|||13|0:0
14|eve|acc|gpu|late|CANCELLED by 0|2026-01-05T10:07:00|Unknown|Unknown|2026-01-05T10:08:00|None assigned|1|0||01:00:00|||14|0:0
15|bob|acc|gpu|small|COMPLETED|2026-01-05T10:08:00|2026-01-05T10:08:00|2026-01-05T10:08:00|2026-01-05T10:18:00|c4|1|2|cpu=2,gres/gpu=1,node=1|01:00:00|||15|0:0
16|bob|acc|gpu|four|COMPLETED|2026-01-05T10:20:00|2026-01-05T10:20:00|2026-01-05T10:20:00|2026-01-05T10:50:00|c4|1|8|cpu=8,gres/gpu=4,node=1|01:00:00|||16|0:0
"""


def test_the_options_are_these():
    """A change here is a change for every script that calls us: keep old names working, and say so in the changelog."""
    cluster = "--at-once --contention --gpus-per-node --interval --keep-going --node-fails-after --nodes --profiles --seed --start-s"
    shared = {*cluster.split(), "--whole-nodes", "--json"}
    found = {
        f"{group} {name}": {max(param.opts, key=len) for param in sub.params if param.opts[0].startswith("-")}
        for group in ("sim", "trace")
        for name, sub in ones.get_command(None, group).commands.items()
    }
    assert found == {
        "sim run": shared | {"--policy", "--journal", "--html"},
        "sim compare": shared | {"--policy", "--html"},
        "sim sweep": shared | {"--policy", "--vary"},
        "sim replay": set(),
        "sim whatif": {"--from", "--site", "--policy", "--assume", "--interval", "--json", "--html"},
        "sim tune": {"--from", "--site", "--assume", "--generations", "--seed", "--output", "--json"},
        "trace import": {"--keep-going", "--output"},
        "trace check": {"--keep-going", "--gpus"},
        "trace synth": {"--jobs", "--hours", "--mix", "--arrivals", "--largest", "--seed", "--output"},
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "sacct.txt").write_text(SACCT)
    return tmp_path


def called(*words, code=0):
    result = CliRunner().invoke(ones, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr
    return result


def test_compare_prints_one_line_a_policy(folder):
    out = called("sim", "compare", "trace.csv", "-P", "strict-fifo", "-P", "first-fit", "--nodes", 3).stdout
    assert [line.split()[0] for line in out.splitlines()] == ["POLICY", "strict-fifo", "first-fit"]


def test_run_tells_of_every_job_as_json(folder):
    answer = json.loads(
        called("sim", "run", "trace.csv", "-P", "first-fit", "--nodes", 3, "--json", "--at-once").stdout
    )
    assert answer["version"] == 1
    assert {job["job_id"]: job["completion_s"] for job in answer["jobs"]} == {"a": 100, "b": 50, "c": 90}
    assert answer["runs"][0]["jobs"] == 3


def test_a_job_larger_than_the_cluster_is_an_error_or_counted(folder):
    error = called("sim", "run", "trace.csv", "-P", "first-fit", "--nodes", 2, code=2).stderr
    assert "trace.csv:4, column GPUs: job c needs 9, and the cluster has 8" in error
    done = called("sim", "run", "trace.csv", "-P", "first-fit", "--nodes", 2, "--keep-going")
    assert "1 jobs are larger than the cluster and left out" in done.stderr
    assert "2/0" in done.stdout


def test_the_page_needs_nothing_from_elsewhere_and_is_the_same_each_time(folder):
    pages = []
    for name in ("one.html", "two.html"):
        called("sim", "compare", "trace.csv", "-P", "first-fit", "-P", "easy", "--nodes", 3, "--html", name)
        pages.append((folder / name).read_text())
    assert pages[0] == pages[1]
    links = set(re.findall(r"""(?:src|href)=["']([^"'#][^"']*)""", pages[0]))
    assert {link for link in links if not link.startswith("data:")} == set()
    assert pages[0].count("<svg") == 3
    assert "GPUs over time: easy" in pages[0]


def test_sweep_runs_every_combination(folder):
    out = called(
        "sim", "sweep", "trace.csv", "-P", "first-fit", "--vary", "nodes=3,4", "--vary", "interval=10,60"
    ).stdout
    assert len(out.splitlines()) == 5
    assert "nodes=4 interval=60" in out
    error = called("sim", "sweep", "trace.csv", "--vary", "colour=1", code=2).stderr
    assert "--vary 'colour=1' is not understood" in error


def test_a_journal_of_a_run_replays(folder):
    called("sim", "run", "trace.csv", "-P", "tiresias", "--nodes", 3, "--journal", "j.sqlite")
    assert "all of them the same" in called("sim", "replay", "j.sqlite").stdout
    assert "there is no journal" in called("sim", "replay", "none.sqlite", code=5).stderr


def test_an_unknown_policy_is_answered_with_the_nearest(folder):
    error = called("sim", "run", "trace.csv", "-P", "tiresia", "--nodes", 3, code=2).stderr
    assert "did you mean 'tiresias'?" in error


def test_what_if_says_what_it_found_and_what_it_assumed(folder):
    out = called("sim", "whatif", "--from", "sacct.txt", "-P", "slurm", "-P", "equal").stdout
    assert "4 jobs on 4 nodes with 16 GPUs" in out
    assert "Elastic: 1 jobs, because its comment holds a wish (10)." in out
    assert "Kept at their size: 2 jobs, because it has no wish." in out
    assert "Kept at their size: 1 jobs, because it held a part of a node." in out
    assert "Left out: 1 jobs, because it never started." in out
    assert "Left out: 1 jobs, because it had no GPU." in out
    assert "Assumed: on n times as many GPUs a job is n^0.8 times as fast." in out


@pytest.mark.parametrize("wish", ["ones:gpus=2-3", "ones:pipeline=p.json,devices=3,replicas=1-2"])
def test_what_if_keeps_a_job_at_its_size_whose_wish_no_whole_nodes_can_meet(folder, wish):
    (folder / "odd.txt").write_text(re.sub(r"ones:[^|]*", wish, SACCT))
    out = called("sim", "whatif", "--from", "odd.txt", "-P", "slurm").stdout
    assert "Kept at their size: 1 jobs, because its wish cannot be met on its nodes" in out


def test_what_if_adds_up_the_gpus_of_jobs_that_shared_a_node(folder):
    """Two GPUs and one at the same time, then another job on two."""
    line = "{0}|ada|acc|gpu|x|COMPLETED|{1}|{1}|{1}|{2}|c1|1|2|cpu=2,gres/gpu={3},node=1|01:00:00|||{0}|0:0"
    day = "2026-01-05T"
    rows = [("1", "10:00:00", "10:30:00", 2), ("2", "10:10:00", "10:20:00", 1), ("3", "10:30:00", "10:40:00", 2)]
    lines = [line.format(job_id, day + begin, day + end, gpus) for job_id, begin, end, gpus in rows]
    (folder / "shared.txt").write_text("\n".join([SACCT.splitlines()[0], *lines]) + "\n")
    out = called("sim", "whatif", "--from", "shared.txt", "-P", "slurm").stdout
    assert "3 jobs on 1 nodes with 3 GPUs" in out
    assert "Kept at their size: 3 jobs, because it held a part of a node." in out


def test_what_if_can_take_long_whole_node_jobs_as_elastic(folder):
    out = called("sim", "whatif", "--from", "sacct.txt", "-P", "slurm", "--assume", 2).stdout
    assert "Elastic: 1 jobs, because its comment holds a wish (10)." in out
    assert "Elastic: 2 jobs, because it held whole nodes for 30 min or more (--assume) (11_1, 16)." in out
    assert "jobs without a wish that held whole nodes for 30 min or more could be moved" in out


def test_what_if_believes_the_site_file_given_before_or_behind_the_command(folder):
    """Partition gpu has nodes of eight GPUs and is left alone; the policy is fifo."""
    (folder / "site.toml").write_text('[partitions.gpu]\ngpus_per_node = 8\nelastic = false\n[policy]\nname = "fifo"\n')
    behind = called("sim", "whatif", "--from", "sacct.txt", "--site", "site.toml").stdout
    assert "4 jobs on 4 nodes with 32 GPUs" in behind
    assert "Kept at their size: 4 jobs, because partition gpu is not elastic." in behind
    assert [line.split()[0] for line in behind.splitlines()[:3]] == ["POLICY", "slurm", "fifo"]
    assert called("--site", "site.toml", "sim", "whatif", "--from", "sacct.txt").stdout == behind


def test_what_if_reads_json_of_old_and_new_releases_alike(folder):
    def job(number, state, times, limit, **more):
        start, end = times
        return {
            "job_id": number,
            "user": "ada",
            "partition": "gpu",
            "name": "train",
            "nodes": "c[1-2]",
            "state": {"current": state},
            "time": {"submission": 1000, "eligible": 1000, "start": start, "end": end, "limit": limit},
            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}, {"type": "node", "count": 2}]},
            **more,
        }

    old = job(1, "COMPLETED", (1100, 9000), None, array={"job_id": 7, "task_id": 3}, exit_code={"return_code": 0})
    unlimited = {"set": False, "infinite": True, "number": 0}
    new = job(2, ["COMPLETED"], (9100, 9200), unlimited, comment={"job": "ones:nodes=1-2"})
    (folder / "saved.json").write_text(json.dumps({"meta": {}, "jobs": [old, new]}))
    out = called("sim", "whatif", "--from", "saved.json", "-P", "slurm").stdout
    assert "2 jobs on 2 nodes with 8 GPUs" in out
    assert "Elastic: 1 jobs, because its comment holds a wish (2)." in out
    (folder / "broken.json").write_text('{"jobs": [{"job_id": "x"')
    assert "broken.json is no answer of sacct --json" in called("sim", "whatif", "--from", "broken.json", code=2).stderr


# What three releases wrote: jobs with GPUs, on nodes, that never started, that had no GPU, kept at a part of a node.
RECORDED = {
    "22.05.8": (5, 6, 2, 3, 4),
    "24.11.5": (3, 5, 6, 1, 1),
    "26.05.5": (9, 5, 3, 1, 6),
}


@pytest.mark.parametrize("release", RECORDED)
def test_what_if_of_what_real_releases_wrote(release):
    jobs, nodes, never, without, part = RECORDED[release]
    dump = Path(__file__).parents[1] / "report" / "data" / f"sacct-{release}.psv"
    notes = json.loads(called("sim", "whatif", "--from", dump, "-P", "slurm", "-P", "equal", "--json").stdout)["notes"]
    assert notes[0].startswith(f"{jobs} jobs on {nodes} nodes ")
    assert f"Left out: {never} jobs, because it never started." in notes
    assert (f"Left out: {without} jobs, because it had no GPU." in notes) == bool(without)
    assert f"Kept at their size: {part} jobs, because it held a part of a node." in notes


@pytest.mark.parametrize("release", RECORDED)
def test_what_if_of_rows_that_the_daemon_itself_asks_for(folder, release):
    """Resizes, merges and requeues, in the columns of our own reader."""
    rows = (Path(__file__).parents[1] / "slurm" / "samples" / f"sacct-{release}.psv").read_text()
    (folder / "dump.txt").write_text("|".join(columns(Release.parse(release))) + "\n" + rows)
    out = called("sim", "whatif", "--from", "dump.txt", "-P", "slurm", "--assume", 2).stdout
    assert "no rows of sacct" not in out
    assert "Assumed: a job that was requeued or resized does all of its work" in out


def test_what_if_of_a_dump_without_jobs(folder):
    (folder / "empty.txt").write_text(SACCT.splitlines()[0] + "\n")
    assert "no job is left to be simulated" in called("sim", "whatif", "--from", "empty.txt", code=2).stderr


def test_a_sites_own_accounting_is_a_trace_like_any_other(folder):
    done = called("trace", "import", "sacct.txt")
    heading, *rows = done.stdout.splitlines()
    elastic, *others = (dict(zip(heading.split(","), row.split(","), strict=True)) for row in rows)
    assert [row["job_id"] for row in others] == ["11_1", "15", "16"]
    # half an hour on one node of four GPUs, and an hour on two of them
    assert (elastic["job_id"], elastic["gpus"], elastic["low_gpus"], elastic["high_gpus"]) == ("10", "4", "4", "16")
    assert float(elastic["duration_s"]) == pytest.approx(1800 + 3600 * 2**0.8)
    assert "1 jobs are left out, because it never started" in done.stderr
    assert "sacct.txt: sacct, 4 jobs" in called("trace", "check", "sacct.txt").stdout
    assert "first-fit" in called("sim", "compare", "sacct.txt", "-P", "first-fit").stdout


def test_nodes_of_several_kinds_are_one_option(folder):
    """Both jobs are in the first partition, on GPUs of half the speed: 100 and 50 s become 200 and 100 s."""
    kinds = "1x4:old*0.5:gpu@r1,1x8:new:big"
    for more in (("-P", "first-fit"), ("-P", "slurm", "--whole-nodes")):
        (folder / "two.csv").write_text("\n".join(TRACE.splitlines()[:3]) + "\n")
        answer = called("sim", "run", "two.csv", "--nodes", kinds, *more, "--json", "--at-once").stdout
        assert {job["job_id"]: job["completion_s"] for job in json.loads(answer)["jobs"]} == {"a": 200, "b": 290}
    error = called("sim", "run", "trace.csv", "-P", "first-fit", "--nodes", kinds, code=2).stderr
    assert "column GPUs: job c needs 9, and partition gpu has 4" in error
    assert "describes no nodes" in called("sim", "run", "trace.csv", "--nodes", "many", code=2).stderr


def test_a_peer_refuses_partitions_that_overlap(folder):
    overlapping = "2x4::gpu+debug,2x4::gpu"
    error = called("sim", "run", "trace.csv", "-P", "easy", "--nodes", overlapping, code=2).stderr
    assert "policy easy needs partitions that share no nodes, not debug+gpu and gpu" in error
    (folder / "two.csv").write_text("\n".join(TRACE.splitlines()[:3]) + "\n")
    called("sim", "run", "two.csv", "-P", "psrpt", "--nodes", overlapping)


def test_traces_are_made_checked_and_imported(folder):
    called("trace", "synth", "-n", 20, "--mix", "bert-cola=1,traced=3", "--seed", 5, "-o", "made.csv")
    assert "made.csv: jobs, 20 jobs" in called("trace", "check", "made.csv").stdout
    assert called("trace", "import", "made.csv").stdout == (folder / "made.csv").read_text()
    assert "1 bad rows" not in called("trace", "check", "trace.csv", "--keep-going").stdout
    (folder / "bad.csv").write_text(TRACE + "d,30,-1,1\n")
    assert "bad.csv:5, column duration" in called("trace", "check", "bad.csv", code=2).stderr
    assert "1 bad rows are left out" in called("trace", "import", "bad.csv", "--keep-going").stderr
    assert "unknown class: gpt" in called("trace", "synth", "--mix", "gpt=1", code=2).stderr
