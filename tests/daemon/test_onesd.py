"""onesd as a process on a real Slurm: its starts, its ends, and what it keeps its hands off."""

import contextlib
import json
import shlex
import signal
import sys
import time
import uuid

import pytest
from own_lab import own_lab

pytestmark = pytest.mark.slurm

ONES, ONESD = [sys.executable, "-m", "ones_slurm.cli.main"], [sys.executable, "-m", "ones_slurm.daemon.main"]
SLEEP = "#!/bin/bash\nsleep 600\n"


@pytest.fixture(scope="module")
def lab():
    with own_lab("onesd", nodes=4, gpus_per_node=2) as running:
        running.run(["bash", "-c", f"printf '{SLEEP}' > /home/user1/sleep.sh"])
        yield running


@pytest.fixture(autouse=True)
def empty_queue(request):
    """Every story starts with an idle cluster."""
    yield
    lab = request.getfixturevalue("lab")
    for user in ("user1", "user2"):
        lab.run(["scancel", f"--user={user}"], user="root")
    until(lambda: not lab.run(["squeue", "-h"], user="root").stdout.strip())


def until(true, within_s=180.0):
    """Waits for something to become true, and returns it."""
    deadline = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return found


class Onesd:
    """A daemon in the lab, its site file, and the commands that reach it."""

    def __init__(self, lab, name, *options, user="operator"):
        self.lab = lab
        self.site = f"/home/{user}/{name}.toml"
        self.log = f"/home/{user}/{name}.log"
        text = (
            "[engine]\ninterval_s = 0.5\nmin_move_gap_s = 0.0\n"
            f'[daemon]\nurl = "http://head:7077"\nlisten = "0.0.0.0:7077"\nstate_dir = "/home/{user}/{name}"\n'
        )
        lab.run(["bash", "-c", f"cat > {self.site}; chmod 755 ~; touch {self.log}"], user=user, input=text)
        command = ["bash", "-c", 'log=$1; shift; exec "$@" 2>>"$log"', "onesd", self.log, *ONESD]
        self.process = lab.popen([*command, "--site", self.site, *options], user=user, host="head")

    def ones(self, *words, user="operator", check=True):
        return self.lab.run([*ONES, "--site", self.site, *words], user=user, check=check)

    def answer(self, *words, user="operator"):
        return json.loads(self.ones(*words, "--json", user=user).stdout)

    def status(self):
        """None while the door is not open yet."""
        script = (
            "import sys, msgspec; from ones_slurm.daemon.answers import State;"
            "from ones_slurm.peer.client import Client; from ones_slurm.model.settings import load_site;"
            "print(msgspec.json.encode(Client(load_site(sys.argv[1]).daemon).get('/v1/status', State)).decode())"
        )
        done = self.lab.run([sys.executable, "-c", script, self.site], user="operator", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def ticked(self, above=0):
        return until(lambda: (status := self.status()) and status["tick"] > above and not status["trouble"] and status)

    def log_text(self):
        return self.lab.run(["cat", self.log], user="root").stdout


@contextlib.contextmanager
def running(lab, *options, name=None, user="operator"):
    daemon = Onesd(lab, name or f"d{uuid.uuid4().hex[:8]}", *options, user=user)
    try:
        yield daemon
    except BaseException:
        print(daemon.status(), daemon.log_text())  # what a failed story needs to be understood
        raise
    finally:
        daemon.process.kill()
        daemon.process.wait(10)


def submit(lab, *options, user="user1"):
    return lab.run(["sbatch", "--parsable", "--gres=gpu:2", *options, "/home/user1/sleep.sh"], user=user).stdout.strip()


def size_and_state(lab, job):
    return lab.run(["squeue", "-h", "-j", job, "-o", "%D %t"]).stdout.strip()


def one_that_must_be_made_smaller(lab):
    """Three of four nodes are taken, and an elastic job that could do with the last one asks for two."""
    lab.run(["chmod", "755", "/home/user1"])
    rigid = submit(lab, "-N3")
    until(lambda: size_and_state(lab, rigid) == "3 R")
    return submit(lab, "-N2", "--comment=charge:7 ones:nodes=1-4,batch=64-256")


def test_it_acts_tells_why_and_stops_cleanly(lab):
    with running(lab) as onesd:
        job = one_that_must_be_made_smaller(lab)
        until(lambda: size_and_state(lab, job) == "1 R")
        assert "1 nodes" in onesd.ones("why", job, user="user1").stdout
        rows = {row["job_id"]: row for row in onesd.answer("queue", user="user1")["jobs"]}
        assert rows[job]["wish"] == "ones:nodes=1-4,batch=64-256"
        assert onesd.status()["slurm_version"] == lab.slurm_version
        onesd.process.terminate()
        assert onesd.process.wait(8) == 0
        assert size_and_state(lab, job) == "1 R"
    assert "stops; every job keeps its size" in onesd.log_text()


def test_observing_it_shows_what_it_would_do_and_does_nothing(lab):
    with running(lab, "--observe") as onesd:
        onesd.ticked()
        job = one_that_must_be_made_smaller(lab)
        start = until(lambda: next((act for act in onesd.answer("plan")["actions"] if act["job_id"] == job), None))
        assert (start["type"], start["nodes"]) == ("start", 1)
        onesd.ticked(above=onesd.status()["tick"] + 4)
        assert size_and_state(lab, job) == "2 PD"
        assert onesd.status()["mode"] == "observe"


def test_a_job_on_its_node_is_told_to_go_with_what_it_holds(lab):
    """Through the network, with the credential of the job's own user, made on the compute node."""
    asks = (
        "import os; from ones_slurm.model.settings import load_site; from ones_slurm.peer.client import Client;"
        "from ones_slurm.model.wire import Phase, Sync;"
        "reply = Client(load_site(os.environ['ONES_SITE']).daemon).sync("
        "os.environ['SLURM_JOB_ID'], Sync(phase=Phase.STARTING, generation=0), wait_s=20);"
        "print(reply.order.go, reply.order.batch, *reply.order.nodes)"
    )
    with running(lab) as onesd:
        onesd.ticked()
        wrapped = shlex.join([sys.executable, "-c", asks])
        options = ["-N2", "--gres=gpu:2", "--comment=ones:nodes=1-4,batch=64-256", "-o", "told"]
        lab.run(["sbatch", *options, "--wrap", wrapped], env={"ONES_SITE": onesd.site})
        told = until(lambda: lab.run(["cat", "told"], check=False).stdout)
    assert told == "True 64 c1 c2\n"


def test_killed_and_started_again_it_goes_on_from_its_journal(lab):
    with running(lab, name="again") as onesd:
        tick = onesd.ticked(above=3)["tick"]
        onesd.process.send_signal(signal.SIGKILL)
        onesd.process.wait(10)
    with running(lab, name="again") as onesd:
        assert onesd.ticked(above=tick)["tick"] <= tick + 20
        assert onesd.process.poll() is None


def test_paused_it_moves_nobody_also_after_a_restart_and_a_user_cannot_resume_it(lab):
    with running(lab, name="paused") as onesd:
        onesd.ticked()
        assert onesd.ones("ctl", "pause").stdout.startswith("onesd      paused, by operator since ")
        onesd.process.send_signal(signal.SIGKILL)
        onesd.process.wait(10)
    with running(lab, name="paused") as onesd:
        onesd.ticked(above=onesd.ticked()["tick"])
        job = one_that_must_be_made_smaller(lab)
        advice = until(lambda: {one["job_id"]: one["nodes"] for one in onesd.answer("plan", user="user1")["advice"]})
        onesd.ticked(above=onesd.status()["tick"] + 4)
        assert (advice, size_and_state(lab, job)) == ({job: 1}, "2 PD")
        refused = onesd.ones("ctl", "resume", user="user1", check=False)
        assert (refused.returncode, "user1 may not control onesd" in refused.stderr) == (3, True)
        assert onesd.status()["control"] == "pause"
        onesd.ones("ctl", "resume")
        until(lambda: size_and_state(lab, job) == "1 R")


def test_a_second_daemon_on_the_same_state_is_refused(lab):
    with running(lab, name="twice") as first:
        first.ticked()
        with running(lab, name="twice") as second:
            assert second.process.wait(20) == 1
        assert "another onesd" in first.log_text()
        first.ticked(above=first.status()["tick"])


def test_another_users_job_is_nobody_elses_business(lab):
    with running(lab) as onesd:
        job = submit(lab, "-N1")
        onesd.ticked(above=onesd.ticked()["tick"])
        assert onesd.answer("show", job, user="user1")["user"] == "user1"
        for command in ("show", "why"):
            refused = onesd.ones(command, job, user="user2", check=False)
            assert (refused.returncode, "not a job of user2" in refused.stderr) == (3, True)
        assert onesd.answer("queue", user="user2")["jobs"] == []
        assert [row["job_id"] for row in onesd.answer("queue", user="root")["jobs"]] == [job]
        assert "refused uid=61002" in onesd.log_text()


def test_in_user_mode_only_own_jobs_are_touched(lab):
    with running(lab, "--user", user="user2") as onesd:
        job = one_that_must_be_made_smaller(lab)
        onesd.ticked(above=onesd.ticked()["tick"] + 4)
        assert size_and_state(lab, job) == "2 PD"
        row = onesd.answer("queue", user="user2")
        assert row["jobs"] == [] or all(one["reason"] == "it belongs to another user" for one in row["jobs"])
        lab.run(["scancel", job])
        own = submit(lab, "-N2", "--comment=ones:nodes=1-4", user="user2")
        until(lambda: size_and_state(lab, own) == "1 R")


def test_without_slurmctld_it_waits_and_says_so(lab):
    lab.stop_service("slurmctld")
    try:
        with running(lab) as onesd:
            status = until(lambda: (found := onesd.status()) and "Unable to contact" in found["trouble"] and found)
            assert status["tick"] == 0
            assert onesd.process.poll() is None
            lab.start_service("slurmctld")
            onesd.ticked()
            assert "Slurm does not answer, will ask again" in onesd.log_text()
    finally:
        lab.start_service("slurmctld")


def test_a_slurmctld_that_hangs_does_not_hold_up_the_end(lab):
    with running(lab) as onesd:
        onesd.ticked()
        pid = lab.run(["pgrep", "-x", "slurmctld"], user="root", host="head").stdout.strip()
        lab.run(["kill", "-STOP", pid], user="root", host="head")
        try:
            time.sleep(1.5)  # long enough for the next tick to have begun
            onesd.process.terminate()
            assert onesd.process.wait(10) == 0
        finally:
            lab.run(["kill", "-CONT", pid], user="root", host="head")
    assert "open moves go on from the journal" in onesd.log_text()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("[engine]\nintervall_s = 3\n", 2, "did you mean 'interval_s'?"),
        ('[policy]\nname = "equally"\n', 2, "did you mean 'equal'?"),
        ('[daemon]\nlisten = "everywhere"\n', 2, "not a host and a port"),
        ('[daemon]\nstate_dir = "/proc/nowhere"\n', 1, "/proc/nowhere"),
    ],
)
def test_a_wrong_site_file_ends_it_with_words(lab, text, code, words):
    if "state_dir" not in text:
        text += "[daemon]\n" if "[daemon]" not in text else ""
        text += 'state_dir = "/tmp/wrong"\n'
    lab.run(["bash", "-c", "cat > ~/wrong.toml"], user="operator", host="head", input=text)
    done = lab.run([*ONESD, "--site", "/home/operator/wrong.toml"], user="operator", host="head", check=False)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
