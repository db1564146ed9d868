"""Who gets in, who is turned away, and what is said: real HTTP, a real munged, real Unix sockets."""

import http.client
import json
import logging
import threading
import time

import msgspec
import pytest
from desk import open_door
from other_user import NOBODY, python_as

from ones_slurm.daemon.answers import JobRow, PlanNow, Queue, State
from ones_slurm.daemon.control import ControlFile
from ones_slurm.model.adoption import Control, Rung
from ones_slurm.model.errors import NotFound, Unreachable, UsageError
from ones_slurm.model.plan import Plan, Target
from ones_slurm.model.settings import Daemon, Moves
from ones_slurm.model.wire import Loan, Order, Phase, Sync, Told
from ones_slurm.peer import munge
from ones_slurm.peer.client import Client

TRAINING = Sync(phase=Phase.TRAINING, generation=1, batch=64)
GROW = Order(generation=2, kind="requeue", go=False, batch=128, reason="two nodes are free")
IMPORTS = """
import encodings.idna, json
from ones_slurm.model.settings import Daemon
from ones_slurm.model.wire import LoanAnswer, Phase, Sync, Told
from ones_slurm.model.errors import OnesError
from ones_slurm.daemon.answers import JobRow, PlanNow, Queue, State
from ones_slurm.model.adoption import Control
from ones_slurm.peer.client import Client
import msgspec
TRAINING = Sync(phase=Phase.TRAINING, generation=1, batch=64)
"""


def as_nobody(daemon: Daemon, call: str) -> str:
    """What `call` (on `client`) gives to the user nobody, or the class of its error and its words."""
    raw = msgspec.json.encode(daemon).decode()
    script = f"""
client = Client(msgspec.json.decode({raw!r}, type=Daemon))
try:
    print(msgspec.json.encode({call}).decode())
except OnesError as error:
    print(type(error).__name__, error.message)
"""
    return python_as(NOBODY, IMPORTS, script)


@pytest.fixture(params=["munge", "socket"])
def doors(request, munge_socket):
    """One job of root and one of nobody behind each of the two kinds of door."""
    with open_door({"11": "root", "12": "nobody"}, auth=request.param, munge_socket=munge_socket) as place:
        yield place, place.daemon


def test_the_owner_is_heard_and_answered(doors):
    place, daemon = doors
    assert json.loads(as_nobody(daemon, "client.sync('12', TRAINING)")) == {"order": None, "loan": None}
    assert place.board.word("12").sync == TRAINING


def test_another_user_cannot_steer_or_read_a_job_and_the_log_says_so(doors, caplog):
    place, daemon = doors
    with caplog.at_level(logging.WARNING, "onesd"):
        assert as_nobody(daemon, "client.sync('11', TRAINING)").startswith("NotAllowed job 11 is not a job of nobody")
        assert as_nobody(daemon, "client.get('/v1/jobs/11', Queue)").startswith("NotAllowed")
        assert as_nobody(daemon, "client.get('/v1/jobs/11/why', Queue)").startswith("NotAllowed")
    assert place.board.words() == {}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert all(f"uid={NOBODY}" in line and "/v1/jobs/11" in line for line in lines)


def test_a_job_that_does_not_exist_looks_like_somebody_elses(doors):
    _, daemon = doors
    assert as_nobody(daemon, "client.get('/v1/jobs/99', Queue)").startswith("NotAllowed job 99 is not a job of nobody")
    with pytest.raises(NotFound, match="no job 99"):
        Client(daemon).get("/v1/jobs/99", JobRow)


def test_lists_hold_own_jobs_only_and_all_of_them_for_root(doors):
    _, daemon = doors
    mine = json.loads(as_nobody(daemon, "client.get('/v1/queue', Queue)"))
    assert [row["job_id"] for row in mine["jobs"]] == ["12"]
    assert [row.job_id for row in Client(daemon).get("/v1/queue", Queue).jobs] == ["11", "12"]
    assert {target.job_id for target in Client(daemon).get("/v1/plan", PlanNow).targets} == {"11", "12"}
    assert Client(daemon).get("/v1/status", State).policy == "ones"


def test_an_admin_reads_all_and_steers_none(munge_socket):
    with open_door({"11": "root"}, auth="socket", admins=["nobody"]) as place:
        assert '"11"' in as_nobody(place.daemon, "client.get('/v1/queue', Queue)")
        assert as_nobody(place.daemon, "client.sync('11', TRAINING)").startswith("NotAllowed")


def test_root_pauses_and_a_stranger_does_not(doors, caplog):
    _, daemon = doors
    with caplog.at_level(logging.INFO, "onesd"):
        assert Client(daemon).post("/v1/control", Told(Control.PAUSE), State).control is Control.PAUSE
        for word in ("run", "drain"):
            said = as_nobody(daemon, f"client.post('/v1/control', Told(Control({word!r})), State)")
            assert said.startswith("NotAllowed nobody may not control onesd")
    told = json.loads(as_nobody(daemon, "client.get('/v1/status', State)"))
    assert (told["control"], told["control_by"], told["drained"]) == ("pause", "root", False)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("root tells onesd: pause" in line for line in lines) == 1
    assert sum(f"refused uid={NOBODY}" in line and "/v1/control" in line for line in lines) == 2
    assert ControlFile(daemon.state_dir).word() is Control.PAUSE  # as after a restart


def test_an_admin_may_pause(munge_socket):
    with open_door({"11": "root"}, auth="socket", admins=["nobody"]) as place:
        said = json.loads(as_nobody(place.daemon, "client.post('/v1/control', Told(Control.DRAIN), State)"))
        assert (said["control"], said["control_by"]) == ("drain", "nobody")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"word": "stop"}', b'{"word": ["pause"]}', b"\xff", b"{" * 5000])
def test_a_word_that_is_none_changes_nothing(munge_door, body):
    target = "/v1/control"
    status, said = raw(munge_door, "POST", target, body, proof(munge_door, "POST", target, body))
    assert (status, "this is not a Told" in said) == (400, True)
    assert ControlFile(munge_door.state_dir).standing.word is Control.RUN


def test_a_control_request_without_a_credential_or_with_another_ones_is_refused(munge_door):
    pause, run = b'{"word":"pause"}', b'{"word":"run"}'
    assert raw(munge_door, "POST", "/v1/control", pause)[0] == 401
    stolen = proof(munge_door, "POST", "/v1/control", run)
    assert raw(munge_door, "POST", "/v1/control", pause, stolen)[0] == 403
    assert ControlFile(munge_door.state_dir).standing.word is Control.RUN


def test_advice_is_its_users_own_and_what_is_only_observed_is_for_admins(doors):
    place, daemon = doors
    root, nobody = (Target(job_id=job_id, nodes=4, batch=256) for job_id in ("11", "12"))

    def at(rung):
        jobs = tuple(msgspec.structs.replace(job, rung=rung) for job in place.latest.view.jobs)
        return msgspec.structs.replace(
            place.latest,
            view=msgspec.structs.replace(place.latest.view, jobs=jobs),
            plan=Plan((), (root, nobody)),
            decisions=(),
        )

    for rung, theirs in ((Rung.ADVISE, ["12"]), (Rung.OBSERVE, [])):
        place.latest = at(rung)
        assert Client(daemon).get("/v1/plan", PlanNow).advice == (root, nobody)
        told = json.loads(as_nobody(daemon, "client.get('/v1/plan', PlanNow)"))
        assert [target["job_id"] for target in told["advice"]] == theirs
        row = json.loads(as_nobody(daemon, "client.get('/v1/jobs/12', JobRow)"))
        assert row["next_nodes"] == (4 if theirs else None)


def test_unknown_jobs_are_not_asked_of_slurm_again_at_once(doors):
    place, daemon = doors
    for _ in range(5):
        with pytest.raises(NotFound):
            Client(daemon).get("/v1/jobs/99", JobRow)
    assert place.slurm.asked == ["99"]


def raw(daemon: Daemon, method: str, target: str, body: bytes = b"", credential: str | None = None):
    """One request as an attacker would write it: its status and its words."""
    host, port = daemon.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request(method, target, body, {"Authorization": f"MUNGE {credential}"} if credential else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def proof(daemon: Daemon, method: str, target: str, body: bytes = b"") -> str:
    return munge.encode(munge.request_digest(method, target, body), daemon.munge_socket)


@pytest.fixture
def munge_door(munge_socket):
    with open_door({"11": "root"}, auth="munge", munge_socket=munge_socket) as place:
        yield place.daemon


SYNC = "/v1/jobs/11/sync?wait_s=0"
BODY = msgspec.json.encode(TRAINING)


def test_a_credential_fits_one_request_only(munge_door):
    good = proof(munge_door, "POST", SYNC, BODY)
    assert raw(munge_door, "POST", SYNC, BODY, good)[0] == 200
    status, words = raw(munge_door, "POST", SYNC, BODY, good)
    assert (status, "used before" in words) == (403, True)
    for method, target, body in [
        ("POST", SYNC, BODY.replace(b"64", b"65")),
        ("POST", "/v1/jobs/12/sync?wait_s=0", BODY),
        ("POST", "/v1/jobs/11/sync?wait_s=9", BODY),
    ]:
        status, words = raw(munge_door, method, target, body, proof(munge_door, "POST", SYNC, BODY))
        assert (status, "another request" in words) == (403, True)


def test_no_credential_and_junk_credentials_are_refused(munge_door):
    assert raw(munge_door, "GET", "/v1/queue")[0] == 401
    assert raw(munge_door, "GET", "/v1/queue", credential="MUNGE:AAAA:")[0] == 403
    assert raw(munge_door, "GET", "/v1/queue", credential="A" * 6000)[0] == 403


def test_metrics_need_no_credential(munge_door):
    status, page = raw(munge_door, "GET", "/metrics")
    assert status == 200
    assert 'ones_jobs{elastic="yes",state="running"} 1.0' in page
    assert "ones_last_tick_timestamp_seconds 1.0" in page


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not a Sync"),
        (b"{", 400, "not a Sync"),
        (b'{"phase":"dancing","generation":1}', 400, "dancing"),
        (b'{"phase":"training","generation":-1}', 400, "generation"),
        (b'{"phase":"training","generation":1,"run":"rm"}', 400, "run"),
        (b'{"phase":"training","generation":1,"notes":["\xff"]}', 400, "not a Sync"),
        (b'{"phase":"training","generation":1,"progress":{"loss":1e999}}', 400, "not a Sync"),
        (b"[" * 50_000, 400, "not a Sync"),
        (b" " * (64 * 1024 + 1), 413, "larger than"),
    ],
)
def test_bad_bodies_are_explained(munge_door, body, status, words):
    answered, said = raw(munge_door, "POST", SYNC, body, proof(munge_door, "POST", SYNC, body))
    assert (answered, words in said) == (status, True), said


@pytest.mark.parametrize("target", ["/v1/jobs/11/sync?wait_s=nan", "/v1/jobs/11/sync?wait_s=31", "/v1/jobs/1;2/sync"])
def test_bad_urls_are_explained(munge_door, target):
    status, said = raw(munge_door, "POST", target, BODY, proof(munge_door, "POST", target, BODY))
    assert status == 400, said


def test_unknown_paths_and_methods_are_explained(munge_door):
    assert raw(munge_door, "GET", "/v1/x", credential=proof(munge_door, "GET", "/v1/x"))[0] == 404
    assert raw(munge_door, "PUT", "/v1/queue", credential=proof(munge_door, "PUT", "/v1/queue"))[0] == 405


def test_the_servers_words_arrive_as_our_errors(doors):
    _, daemon = doors
    with pytest.raises(UsageError, match="wait_s"):
        Client(daemon).sync("11", TRAINING, wait_s=99)


def test_an_order_that_stands_is_answered_at_once(doors):
    place, daemon = doors
    place.board.post("11", GROW)
    begun = time.monotonic()
    assert Client(daemon).sync("11", TRAINING, wait_s=20).order == GROW
    assert time.monotonic() - begun < 2


def test_an_order_that_comes_later_ends_the_wait(doors):
    place, daemon = doors
    threading.Timer(0.3, place.board.post, ("11", GROW)).start()
    begun = time.monotonic()
    assert Client(daemon).sync("11", TRAINING, wait_s=20).order == GROW
    assert 0.2 < time.monotonic() - begun < 5


def test_an_order_that_is_followed_is_told_again_but_not_in_a_hurry(doors):
    place, daemon = doors
    place.board.post("11", GROW)
    leaving = Sync(phase=Phase.LEAVING, generation=1, batch=64)
    begun = time.monotonic()
    assert Client(daemon).sync("11", leaving, wait_s=0.5).order == GROW
    assert 0.4 < time.monotonic() - begun < 5


def test_an_order_that_is_withdrawn_ends_the_wait(doors):
    place, daemon = doors
    place.board.post("11", GROW)
    leaving = Sync(phase=Phase.LEAVING, generation=1, batch=64)
    threading.Timer(0.3, place.board.post, ("11", None)).start()
    begun = time.monotonic()
    assert Client(daemon).sync("11", leaving, wait_s=20).order is None
    assert 0.2 < time.monotonic() - begun < 5


def test_without_an_order_the_wait_ends_by_itself(doors):
    _, daemon = doors
    begun = time.monotonic()
    assert Client(daemon).sync("11", TRAINING, wait_s=0.5).order is None
    assert 0.4 < time.monotonic() - begun < 5


def test_no_daemon_is_unreachable():
    for daemon in (Daemon(auth="socket", socket="/nowhere.sock"),):
        with pytest.raises(Unreachable, match=r"/nowhere\.sock"):
            Client(daemon).get("/v1/status", State)


LOAN = Loan(job_id="12", restarts=0, generation=5, nodes=2, minutes=30)


def test_a_job_is_told_of_its_companion_where_jobs_submit_and_its_word_on_it_is_taken(munge_socket):
    with open_door({"12": "nobody"}, munge_socket=munge_socket, moves=Moves(companions="job")) as place:
        place.board.ask_for("nobody", LOAN)
        told = json.loads(as_nobody(place.daemon, "client.sync('12', TRAINING)"))
        assert (told["loan"]["nodes"], told["loan"]["generation"]) == (2, 5)
        answer = "client.answer('12', LoanAnswer(restarts=0, generation=5, refused='no')) or TRAINING"
        as_nobody(place.daemon, answer)
        assert place.board.loans.answer_to("12").refused == "no"
        assert "12" in place.board.wait_for_news(0), "the growth is looked at at once"
        assert json.loads(as_nobody(place.daemon, "client.loans()")) == {"loans": []}, "agents have no say here"


def test_an_agent_hears_of_its_own_users_companions_only(munge_socket):
    jobs = {"12": "nobody", "11": "root"}
    with open_door(jobs, munge_socket=munge_socket, moves=Moves(companions="agent")) as place:
        place.board.ask_for("nobody", LOAN)
        place.board.ask_for("root", msgspec.structs.replace(LOAN, job_id="11"))
        (loan,) = json.loads(as_nobody(place.daemon, "client.loans()"))["loans"]
        assert loan["job_id"] == "12"
        assert json.loads(as_nobody(place.daemon, "client.sync('12', TRAINING)"))["loan"] is None
        said = as_nobody(place.daemon, "client.answer('11', LoanAnswer(restarts=0, generation=5, refused='no'))")
        assert said.startswith("NotAllowed")
        assert place.board.loans.answer_to("11") is None


def test_an_answer_that_makes_no_sense_is_refused(munge_socket):
    with open_door({"12": "nobody"}, munge_socket=munge_socket) as place:
        wrong = "client._ask('POST', '/v1/jobs/12/loan', b'{\"generation\": -1}', LoanAnswer, 0.0)"
        assert "this is not a LoanAnswer" in as_nobody(place.daemon, wrong)
