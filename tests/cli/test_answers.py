"""The commands that ask onesd: through a real door, as a real process, its output read through a pipe."""

import json
import subprocess
import sys

import msgspec
import pytest
import toml
from desk import open_door, site_text

from ones_slurm.cli.info import partition_rows
from ones_slurm.cli.queue import COLUMNS
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.adoption import Rung
from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Outcome, Plan, Shrink, Status, Target
from ones_slurm.model.settings import Daemon, Site
from ones_slurm.report.shown import show_types
from ones_slurm.slurm.client import NodeRecord, Snapshot


def ones(*words, site=None, env=None):
    """One command as a script would run it."""
    given = ["--site", str(site)] if site else []
    return subprocess.run(
        [sys.executable, "-m", "ones_slurm.cli.main", *given, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=env,
    )


@pytest.fixture
def site(tmp_path):
    """A site file that leads to a door with one job of root and one of nobody behind it."""
    with open_door({"11": "root", "12": "nobody"}, auth="socket") as place:
        path = tmp_path / "site.toml"
        path.write_text(site_text(place.daemon))
        yield path


def test_the_queue_is_a_plain_whole_table_in_a_pipe(site):
    shown = ones("queue", site=site)
    assert shown.returncode == 0, shown.stderr
    head, *rows = shown.stdout.splitlines()
    assert " ".join(head.split()) == "JOBID PARTITION NAME USER ST TIME NODES GPUS BATCH PROG ETA NEXT NODELIST"
    assert [row.split()[:5] for row in rows] == [
        ["11", "gpu", "train", "root", "R"],
        ["12", "gpu", "train", "nobody", "R"],
    ]
    assert rows[0].split()[6:] == ["2", "4", "64", "25%", "-", "1:64", "n[0-1]"]
    assert "\x1b" not in shown.stdout


def test_where_a_cluster_has_several_types_of_gpus_the_queue_names_them(tmp_path):
    with open_door({"11": "root", "12": "nobody"}, auth="socket") as place:
        (tmp_path / "site.toml").write_text(site_text(place.daemon))
        view = place.latest.view
        types = ("a100", "v100", "v100", "v100")
        nodes = tuple(
            msgspec.structs.replace(node, gpu_type=kind) for node, kind in zip(view.nodes, types, strict=True)
        )
        place.latest = msgspec.structs.replace(place.latest, view=msgspec.structs.replace(view, nodes=nodes))
        head, *rows = ones("queue", site=tmp_path / "site.toml").stdout.splitlines()
        told = json.loads(ones("queue", "--json", site=tmp_path / "site.toml").stdout)
    at = head.split().index("GPUTYPE")
    assert head.split()[at - 1] == "GPUS"
    assert [row.split()[at] for row in rows] == ["a100:2,v100:2", "v100"]
    assert told["gpu_types"] == ["a100", "v100"]
    assert told["jobs"][0]["gpu_types"] == {"a100": 2, "v100": 2}


def test_info_names_the_types_of_each_partition():
    nodes = [
        NodeRecord(name=name, states=("IDLE",), usable=True, gpus=4, gpu_type=kind, partitions=(partition,))
        for name, kind, partition in (
            ("n1", "a100", "new"),
            ("n2", "v100", "old"),
            ("n3", "t4", "old"),
            ("n4", "", "x"),
        )
    ]
    rows = partition_rows(Snapshot(0.0, (), tuple(nodes)), Site())
    assert {row.partition: show_types(row.gpu_types) for row in rows} == {"new": "a100", "old": "t4:4,v100:4", "x": "-"}


def test_the_queue_is_chosen_by_user_job_partition_and_column(site):
    assert ones("queue", "-u", "nobody", "-o", "jobid,name%3", "--noheader", site=site).stdout == "12  tra\n"
    assert ones("queue", "-p", "cpu", "--noheader", site=site).stdout.strip() == ""
    answer = json.loads(ones("queue", "-j", "11", "--json", site=site).stdout)
    assert (answer["version"], [row["job_id"] for row in answer["jobs"]]) == (1, ["11"])


def test_an_administrator_pauses_and_everybody_sees_it(site):
    assert ones("ctl", "status", site=site).stdout.splitlines()[0].split() == ["onesd", "running"]
    assert ones("ctl", "pause", site=site).stdout.startswith("onesd      paused, by root since ")
    assert ones("ctl", "drain", site=site).stdout.startswith("onesd      draining, by root since ")
    answer = json.loads(ones("ctl", "status", "--json", site=site).stdout)
    assert (answer["version"], answer["control"], answer["rungs"]) == (1, "drain", {"act": 2})
    assert ones("ctl", "resume", site=site).stdout.startswith("onesd      running, by root since ")
    assert ones("ctl", "stop", site=site).returncode == 2


def test_advice_is_told_from_a_plan_by_a_question_mark(tmp_path):
    with open_door({"11": "root"}, auth="socket") as place:
        (tmp_path / "site.toml").write_text(site_text(place.daemon))
        (job,) = place.latest.view.jobs
        view = msgspec.structs.replace(place.latest.view, jobs=(msgspec.structs.replace(job, rung=Rung.ADVISE),))
        plan = Plan((), (Target(job_id="11", nodes=4, batch=256, reason="two are free"),))
        place.latest = msgspec.structs.replace(place.latest, view=view, plan=plan, decisions=())
        shown = ones("queue", "-o", "next,rung", "--noheader", site=tmp_path / "site.toml").stdout.split()
        told = ones("plan", site=tmp_path / "site.toml").stdout
    assert shown == ["4:256?", "advise"]
    assert told.splitlines()[0].endswith("0 targets, 0 actions")
    assert told.splitlines()[-1].split() == ["11", "4", "256", "x1", "two", "are", "free"]


def test_every_column_of_the_queue_is_explained(site):
    told = " ".join(ones("queue", "--help").stdout.split())
    assert all(f"{column.name} {column.what}" in told for column in COLUMNS)
    hidden = ones("queue", "-j", "11", "-o", "gen,move,reason,wish", "--noheader", site=site).stdout.split()
    assert hidden[:4] == ["1", "-", "others", "wait"]


def test_what_is_not_there_is_exit_code_5(site):
    gone = ones("queue", "-j", "99", site=site)
    assert (gone.returncode, gone.stdout) == (5, "")
    assert "99" in gone.stderr
    assert ones("show", "99", site=site).returncode == 5


def test_an_unknown_column_is_answered_with_every_known_one(site):
    wrong = ones("queue", "-o", "jobid,sise", site=site)
    assert wrong.returncode == 2
    assert "'sise'" in wrong.stderr
    assert "jobid, partition, name" in wrong.stderr


def test_one_job_is_shown_by_its_fields(site):
    shown = ones("show", "11", site=site).stdout.splitlines()
    assert shown[0].split() == ["job_id", "11"]
    assert json.loads(ones("show", "11", "--json", site=site).stdout)["version"] == 1


def test_the_plan_lists_targets_and_actions(site):
    shown = ones("plan", site=site).stdout
    assert shown.startswith("policy ones, tick 1: 2 targets, 2 actions\n")
    assert "shrink" in shown
    assert json.loads(ones("plan", "--json", site=site).stdout)["actions"][0]["type"] == "shrink"


def test_why_tells_reason_and_numbers(site):
    shown = ones("why", "11", site=site)
    assert shown.returncode == 0, shown.stderr
    assert "others wait" in shown.stdout


def test_why_tells_how_long_a_move_took_and_the_last_word_alone(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(
        toml.dumps({"daemon": {"auth": "socket", "socket": str(tmp_path / "none"), "state_dir": str(tmp_path)}})
    )
    shrink = Shrink(job_id="11", generation=2, keep=("n1",), batch=64, reason="others wait")
    with Journal.open(Daemon(state_dir=str(tmp_path)).journal) as journal:
        journal.begin_run(Run(policy="equal", seed=1), 0.0)
        decision = Decision(job_id="11", reason="others wait", action=shrink)
        view = ClusterView(100.0, (), ())
        journal.record(
            Tick(tick=1, now_s=100.0, took_s=0.0, view=view, plan=Plan(), memory=Memory(), decisions=(decision,))
        )
        journal.end(Outcome("11", 2, Status.DONE), 175.0)
    decided, sent, done = ones("why", "11", site=path).stdout.splitlines()
    assert decided.endswith("decision: others wait")
    assert sent.endswith("shrink (generation 2, 1 nodes, 64 batch)")
    assert done.endswith("done (generation 2, 1 nodes, 64 batch), after 00:01:15")
    assert ones("why", "11", "-n", "1", site=path).stdout.splitlines() == [done]


def test_why_reads_the_journal_where_onesd_does_not_answer(tmp_path):
    settings = Daemon(auth="socket", socket=str(tmp_path / "none.sock"), state_dir=str(tmp_path))
    path = tmp_path / "site.toml"
    path.write_text(toml.dumps({"daemon": {"auth": "socket", "socket": settings.socket, "state_dir": str(tmp_path)}}))
    assert ones("why", "11", site=path).returncode == 4
    with Journal.open(settings.journal) as journal:
        journal.event(1.0, "left the queue", "11")
    told = ones("why", "11", site=path)
    assert told.returncode == 0, told.stderr
    assert told.stdout.endswith("event: left the queue\n")
    assert ones("why", "12", site=path).returncode == 5


@pytest.mark.parametrize("job", ["eleven", "-1", "11;id", "../status"])
def test_what_cannot_be_a_job_id_is_wrong_use(site, job):
    for command in ("show", "why"):
        assert ones(command, "--", job, site=site).returncode == 2


def test_without_onesd_the_exit_code_is_4_and_the_words_say_where_it_was_looked_for(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(toml.dumps({"daemon": {"auth": "socket", "socket": str(tmp_path / "none.sock")}}))
    for words in (["queue"], ["show", "11"], ["plan"]):
        failed = ones(*words, site=path)
        assert failed.returncode == 4
        assert failed.stderr.startswith("ones: onesd does not answer")
        assert "none.sock" in failed.stderr
        assert "Traceback" not in failed.stderr
    assert "Traceback" in ones("--debug", "queue", site=path).stderr


def test_config_says_where_each_value_comes_from(site):
    lines = dict(line.split(None, 1) for line in ones("show", "config", site=site).stdout.splitlines())
    assert lines["daemon.auth"] == "socket  (file)"
    assert lines["engine.interval_s"] == "30.0  (default)"
    config = json.loads(ones("show", "config", "--json", site=site).stdout)
    assert config["settings"]["daemon.auth"] == {"value": "socket", "from": "file"}


def test_a_wrong_key_in_the_site_file_is_answered_with_the_nearest_right_one(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text("[engine]\nintervall_s = 3\n")
    for words in (["queue"], ["plan"], ["show", "config"]):
        wrong = ones(*words, site=path)
        assert wrong.returncode == 2
        assert "intervall_s" in wrong.stderr
        assert "did you mean 'interval_s'?" in wrong.stderr
