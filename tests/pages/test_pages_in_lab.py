"""Both pages on a real Slurm that keeps jobs private, with a real onesd, and a browser inside of the cluster."""

import functools
import subprocess
import sys
import time

import pytest
from browser import open_browser
from own_lab import own_lab

pytestmark = pytest.mark.slurm
ONES, ONESD = [sys.executable, "-m", "ones_slurm.cli.main"], [sys.executable, "-m", "ones_slurm.daemon.main"]
JOBS = "[...document.querySelectorAll('#jobs tbody tr')].map(r => r.querySelector('td').innerText.trim())"


@pytest.fixture(scope="module")
def lab():
    with own_lab("pages", nodes=2, gpus_per_node=2, slurm_conf={"PrivateData": "jobs"}) as running:
        yield running


@pytest.fixture
def onesd(lab):
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    daemon = lab.popen(ONESD, user="operator", host="head", **streams)
    until_s = time.monotonic() + 60
    while lab.run([*ONES, "plan"], user="operator", check=False).returncode != 0:
        assert time.monotonic() < until_s, "onesd does not answer"
        time.sleep(0.2)
    yield daemon
    daemon.terminate()
    assert daemon.wait(30) == 0


def submit(lab, user, name):
    argv = ["sbatch", "--parsable", "-N1", "--gres=gpu:2", "-J", name, "-o", "/dev/null", "--wrap", "sleep 600"]
    return lab.run(argv, user=user).stdout.strip()


def test_a_user_watches_own_jobs_live_and_reads_a_report_of_them(lab, onesd):
    mine, other = submit(lab, "user1", "<b>mine</b>"), submit(lab, "user2", "theirs")
    with open_browser(functools.partial(lab.popen, user="root")) as browser:
        tab = browser.tab()
        tab.go(lab.run([*ONES, "page"], user="user1").stdout.strip())
        tab.until(f"{JOBS}.join() == '{mine}'")
        tab.until("document.querySelectorAll('#map .g.other').length == 2")
        page = tab.run("document.documentElement.outerHTML")
        assert "theirs" not in page
        assert "<b>mine</b>" in tab.run("document.querySelector('#jobs').innerText")
        later = submit(lab, "user1", "later")
        tab.until(f"{JOBS}.join() == '{mine},{later}'")
        everybody = browser.tab()
        everybody.go(lab.run([*ONES, "page"], user="operator").stdout.strip())
        assert everybody.run(JOBS) == [mine, other, later]

        lab.run(["scancel", mine, other, later], user="root")
        tab.until(f"{JOBS}.length == 0")
        told = browser.tab()
        lab.run([*ONES, "report", "-S", "now-1hours", "--html", "mine.html"], user="user1")
        told.go("file:///home/user1/mine.html")
        assert {
            row.split()[0] for row in told.run("[...document.querySelectorAll('#jobs tbody tr')].map(r => r.innerText)")
        } == {
            mine,
            later,
        }
        assert told.run("document.querySelectorAll('#gantt rect.box').length") >= 1
        assert [tab.problems, everybody.problems, told.problems] == [[], [], []]
        assert told.requests == ["file:///home/user1/mine.html"]
        assert {url.split("/")[2] for url in tab.requests} == {"head:7077"}
