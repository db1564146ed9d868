"""The live page of a real door, opened by a browser: who is let in, what they see, and that it follows the daemon."""

import asyncio
import http.client
import json
import subprocess
import sys
import urllib.parse

import msgspec
import pytest
from aiohttp import web
from browser import open_browser
from desk import open_door, site_text
from other_user import NOBODY, python_as

from ones_slurm.daemon.answers import PageLink
from ones_slurm.daemon.auth import Caller
from ones_slurm.daemon.main import _open
from ones_slurm.daemon.page_keys import KEY_LASTS_S, SESSION_LASTS_S, PageKeys
from ones_slurm.daemon.page_view import Reader, moment, page_view
from ones_slurm.model.cluster import NodeView
from ones_slurm.model.settings import Daemon
from ones_slurm.model.wire import Progress
from ones_slurm.peer.client import Client

HOSTILE = "<script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(2)>\u202egpj\x07"


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture
def place(munge_socket):
    """A door with a job of root, whose name bites, and one of nobody; two nodes of two GPUs each."""
    with open_door({"11": "root", "12": "nobody"}, auth="munge", munge_socket=munge_socket) as opened:
        renamed(opened, "11", HOSTILE)
        yield opened


def renamed(place, job_id, name):
    """The next tick shows this job under another name."""
    view = place.latest.view
    jobs = tuple(msgspec.structs.replace(job, name=name) if job.job_id == job_id else job for job in view.jobs)
    place.latest = msgspec.structs.replace(place.latest, view=msgspec.structs.replace(view, jobs=jobs))


def link(place):
    """What `ones page` prints for root."""
    return place.daemon.url + Client(place.daemon).get("/v1/page", PageLink).path


def link_of_nobody(place):
    imports = """
import encodings.idna
import msgspec
from ones_slurm.model.cluster import NodeView
from ones_slurm.model.settings import Daemon
from ones_slurm.daemon.answers import PageLink
from ones_slurm.peer.client import Client
"""
    raw = msgspec.json.encode(place.daemon).decode()
    script = f"print(Client(msgspec.json.decode({raw!r}, type=Daemon)).get('/v1/page', PageLink).path)"
    return place.daemon.url + python_as(NOBODY, imports, script)


def get(daemon, target, cookie=""):
    """Status, headers and text of a plain request."""
    where = urllib.parse.urlsplit(daemon.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=20)
    try:
        connection.request("GET", target, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


JOBS = "[...document.querySelectorAll('#jobs tbody tr')].map(r => r.querySelector('td').innerText.trim())"


def test_the_page_shows_nodes_jobs_plan_and_decisions_and_asks_nobody_else(browser, place):
    tab = browser.tab()
    tab.go(link(place))
    assert tab.run("location.pathname + location.search") == "/"
    assert tab.run(JOBS) == ["11", "12"]
    assert tab.run("[...document.querySelectorAll('#map .node')].map(n => n.innerText.split('\\n')[0])") == [
        "n0", "n1", "n2", "n3",
    ]  # fmt: skip
    assert tab.run("document.querySelectorAll('#map .g').length") == 8
    assert tab.run("[...document.querySelectorAll('#plan tbody tr')].map(r => r.children[4].innerText)") == [
        "shrink to 1, batch 64"
    ] * 2  # fmt: skip
    assert tab.run("document.querySelector('#jobs progress').value") == 0.25
    assert tab.run("document.querySelector('#decided').innerText.includes('Nothing was decided yet')")
    assert tab.problems == []
    assert {urllib.parse.urlsplit(url)[:2] for url in tab.requests} == {("http", place.daemon.url[7:])}


def test_what_a_user_typed_is_text(browser, place):
    tab = browser.tab()
    tab.go(link(place))
    assert tab.run("document.querySelectorAll('main script, main img').length") == 0
    assert tab.run("document.querySelector('#jobs td[data-is=NAME]').innerText") == HOSTILE.replace(
        "\u202e", "?"
    ).replace("\x07", "?")
    assert tab.problems == []


def test_the_next_tick_arrives_by_itself(browser, place):
    tab = browser.tab()
    tab.go(link(place))
    renamed(place, "12", "a new name")
    tab.until("document.querySelector('#jobs').innerText.includes('a new name')")
    place.latest = msgspec.structs.replace(place.latest, trouble="<b>Slurm</b> does not answer")
    tab.until("document.querySelector('[role=alert]')?.innerText.includes('<b>Slurm</b> does not answer')")
    assert tab.problems == []


def test_it_works_without_javascript(browser, place):
    tab = browser.tab(javascript=False)
    tab.go(link(place))
    assert len(tab.requests) >= 3
    text = tab.ask("DOM.getDocument", depth=-1)
    html = tab.ask("DOM.getOuterHTML", nodeId=text["root"]["nodeId"])["outerHTML"]
    assert '<meta http-equiv="refresh" content="30">' in html
    assert "others wait" in html
    assert tab.problems == []


def test_it_fits_a_phone_a_tablet_and_a_screen(browser, place):
    tab = browser.tab(width=390)
    tab.go(link(place))
    for width in (390, 820, 1440):
        tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        assert tab.run("document.documentElement.scrollWidth") <= width


def test_without_a_link_nobody_is_let_in_and_it_is_said_how(browser, place):
    tab = browser.tab()
    tab.go(place.daemon.url + "/")
    assert "ones page" in tab.run("document.body.innerText")
    assert tab.run("document.querySelector('#jobs')") is None
    assert get(place.daemon, "/")[0] == 401
    assert get(place.daemon, "/events")[0] == 401
    assert get(place.daemon, "/", "ones_page=guess")[0] == 401


def test_a_link_is_good_once_and_its_cookie_opens_the_page_alone(place):
    target = link(place).removeprefix(place.daemon.url)
    status, headers, _ = get(place.daemon, target)
    cookie = headers["Set-Cookie"]
    assert (status, headers["Location"]) == (303, "/")
    assert {"HttpOnly", "Path=/", "SameSite=Lax"} <= {part.strip() for part in cookie.split(";")}
    assert get(place.daemon, target)[0] == 403
    mine = cookie.partition(";")[0]
    assert get(place.daemon, "/", mine)[0] == 200
    for api in ("/v1/queue", "/v1/page", "/v1/jobs/11/why"):
        assert get(place.daemon, api, mine)[0] == 401


def test_the_answers_forbid_what_the_page_does_not_need(place):
    _, headers, _ = get(place.daemon, "/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")


@pytest.mark.parametrize(
    ("private", "jobs", "nodes"),
    [((), ["11", "12"], 4), (("jobs",), ["12"], 4), (("jobs", "nodes"), ["12"], 0), (("usage",), ["11", "12"], 4)],
)
def test_a_user_sees_what_slurm_would_show(browser, place, private, jobs, nodes):
    place.desk.private_data = frozenset(private)
    tab = browser.tab()
    tab.go(link_of_nobody(place))
    assert tab.run(JOBS) == jobs
    assert tab.run("document.querySelectorAll('#map .node').length") == nodes
    text = tab.run("document.documentElement.outerHTML")
    assert ("alert(1)" in text) == ("11" in jobs)
    assert ("a job of another user" in text) == (private == ("jobs",))


def test_root_and_admins_see_all(place):
    """No browser is needed to see that the kind of reader is everybody's."""
    place.desk.private_data = frozenset({"jobs", "nodes"})
    _, headers, _ = get(place.daemon, link(place).removeprefix(place.daemon.url))
    page = get(place.daemon, "/", headers["Set-Cookie"].partition(";")[0])[2]
    assert ">12<" in page
    assert "n0: job 11" in page


def test_before_slurm_has_said_what_is_private_everything_is(browser, place):
    tab = browser.tab()
    tab.go(link_of_nobody(place))
    assert tab.run(JOBS) == ["12"]
    assert tab.run("document.querySelectorAll('#map .node').length") == 0


def test_keys_and_cookies_end_and_are_no_more_than_a_user_needs():
    now = [0.0]
    keys, caller = PageKeys(lambda: now[0]), Caller(1, "one")
    early = keys.key_for(caller)
    now[0] = KEY_LASTS_S
    assert keys.enter(early) is None
    cookie = keys.enter(keys.key_for(caller))
    now[0] += SESSION_LASTS_S - 1
    assert keys.caller(cookie) == caller
    now[0] += 1
    assert keys.caller(cookie) is None
    many = [keys.key_for(caller) for _ in range(40)]
    other = keys.key_for(Caller(2, "two"))
    assert [keys.enter(key) is not None for key in many] == [False] * 8 + [True] * 32
    assert keys.caller(keys.enter(other)) == Caller(2, "two")


def test_a_node_without_gpus_is_seen_and_counts_none(place):
    view = place.latest.view
    nodes = (*view.nodes, NodeView("cpu1", 0, True), NodeView("down1", 2, False))
    told = page_view(
        msgspec.structs.replace(place.latest, view=msgspec.structs.replace(view, nodes=nodes)),
        place.desk.queue().jobs,
        place.desk.state(),
        (),
        Reader(None, True),
    )
    assert told.gpu_types == ()
    assert (told.gpus, told.gpus_held, told.gpus_out) == (10, 8, 2)
    assert [(cell.name, [square.look for square in cell.squares]) for cell in told.nodes[4:]] == [
        ("cpu1", ["free"]),
        ("down1", ["out", "out"]),
    ]


def mixed(place):
    """The cluster now has two types of GPUs: job 11 is on one of each."""
    view = place.latest.view
    types = ("a100", "v100", "v100", "v100")
    typed = [msgspec.structs.replace(node, gpu_type=kind) for node, kind in zip(view.nodes, types, strict=True)]
    nodes = (*typed, NodeView("idle1", 4, True, "a100"))
    place.latest = msgspec.structs.replace(place.latest, view=msgspec.structs.replace(view, nodes=nodes))


def test_where_a_cluster_has_several_types_of_gpus_they_are_named(place):
    cookie = get(place.daemon, link(place).removeprefix(place.daemon.url))[1]["Set-Cookie"].partition(";")[0]
    assert "GPUTYPE" not in get(place.daemon, "/", cookie)[2]
    mixed(place)
    text = get(place.daemon, "/", cookie)[2]
    assert "Held of each type: a100 <b>2 / 6</b>, v100 <b>6 / 6</b>." in text
    assert "n0 (a100)" in text
    assert '<td class="" data-is="GPUTYPE">a100:2,v100:2</td>' in text
    assert '<td class="" data-is="GPUTYPE">v100</td>' in text


def test_over_a_unix_socket_the_kernel_says_who_is_looking():
    """As through `ssh -L 7078:/run/onesd.sock`, whose far end is a process of the user."""
    with open_door({"11": "root", "12": "nobody"}, auth="socket") as place:
        place.desk.private_data = frozenset({"jobs"})
        ask = f"""
knock = socket.socket(socket.AF_UNIX)
knock.connect({place.daemon.socket!r})
knock.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
answer = b"".join(iter(lambda: knock.recv(65536), b""))
print(answer.decode())
"""
        page = python_as(NOBODY, "import encodings.idna, socket", ask)
    assert page.startswith("HTTP/1.1 200")
    assert "You see the jobs of nobody" in page
    assert "n2: job 12" in page
    assert "job 11" not in page


def test_the_command_prints_a_link_that_lets_in(place, tmp_path):
    (tmp_path / "site.toml").write_text(site_text(place.daemon))
    told = ones_page(tmp_path / "site.toml")
    assert told.returncode == 0, told.stderr
    assert get(place.daemon, told.stdout.strip().removeprefix(place.daemon.url))[0] == 303


def test_behind_a_unix_socket_the_command_says_what_is_missing(tmp_path):
    with open_door({"11": "root"}, auth="socket") as place:
        (tmp_path / "site.toml").write_text(site_text(place.daemon))
        told = ones_page(tmp_path / "site.toml")
    assert told.returncode == 2
    assert "daemon.page_listen" in told.stderr


def ones_page(site):
    return subprocess.run(
        [sys.executable, "-m", "ones_slurm.cli.main", "--site", str(site), "page"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_daemon_behind_a_unix_socket_may_have_a_door_for_browsers(tmp_path):
    """The second door is real TCP; it takes nobody's word for who they are."""
    from ones_slurm.daemon.api import build_app
    from ones_slurm.daemon.owners import Owners

    daemon = Daemon(auth="socket", socket=str(tmp_path / "s"), page_listen=f"127.0.0.1:{free_port()}")
    with open_door({"11": "root"}, auth="socket") as place:

        async def serve() -> tuple[int, int, int]:
            owners = Owners(place.desk.owner, place.desk.look_up_owner, ())
            runner = web.AppRunner(build_app(place.desk, owners, daemon))
            await runner.setup()
            try:
                assert await _open(runner, daemon) == f"{tmp_path}/s and {daemon.page_listen}"
                page = msgspec.structs.replace(daemon, url=f"http://{daemon.page_listen}")
                targets = ("/", "/v1/queue", "/metrics")
                return tuple([(await asyncio.to_thread(get, page, target))[0] for target in targets])
            finally:
                await runner.cleanup()

        assert asyncio.run(serve()) == (401, 401, 200)


def free_port():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_finish_that_is_no_date_is_not_shown(browser, place):
    """A job may say that it trains a millionth of a sample a second, or that it needs 2**53 of them."""
    assert moment(None) == moment(1e300) == "-"
    view = place.latest.view
    slow = Progress(samples=0, total_samples=2**53, samples_per_s=1e-300)
    jobs = tuple(msgspec.structs.replace(job, progress=slow) for job in view.jobs)
    place.latest = msgspec.structs.replace(place.latest, view=msgspec.structs.replace(view, jobs=jobs))
    tab = browser.tab()
    tab.go(link(place))
    assert tab.run("[...document.querySelectorAll('#jobs td[data-is=ETA]')].map(c => c.innerText)") == ["-", "-"]


def test_the_last_decisions_are_moves_and_the_newest_word_on_each_job(place, browser):
    from ones_slurm.engine.records import Decided
    from ones_slurm.model.plan import Status

    def stays(at_s, reason):
        return Decided(
            at_s=at_s, job_id="11", reason=reason, kind=None, from_nodes=None, to_nodes=None, batch=None,
            outcome=None, told=None,
        )  # fmt: skip

    move = Decided(
        at_s=2.0, job_id="11", reason="others wait", kind="shrink", from_nodes=2, to_nodes=1, batch=64,
        outcome=Status.DONE, told="trains on",
    )  # fmt: skip
    story = [stays(4.0, "newest"), stays(3.0, "older"), move, stays(1.0, "before"), stays(0.0, "first")]
    view = page_view(place.latest, place.desk.queue().jobs, place.desk.state(), story, Reader(None, True))
    assert [entry.reason for entry in view.decided] == ["newest", "others wait", "before"]


def test_the_openings_are_json_with_a_version(place):
    assert msgspec.structs.asdict(Client(place.daemon).get("/v1/page", PageLink))["version"] == 1
    assert json.loads(get(place.daemon, "/v1/page")[2])["error"]
