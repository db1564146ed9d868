"""The report's page, opened by a browser as people open it: whole, quiet, and safe from what users typed."""

import html
import re
from pathlib import Path

import msgspec
import pytest
from accounting_rows import row
from browser import open_browser
from click.testing import CliRunner

from ones_slurm.cli.main import ones
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView
from ones_slurm.model.plan import Outcome, Plan, Shrink, Status
from ones_slurm.model.settings import Site
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import parse_wish
from ones_slurm.report.page_data import lanes, summary, timeline_of
from ones_slurm.report.segments import histories
from ones_slurm.study.timelines import beside

HOSTILE = "<script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(2)>\u202egpj\x07"
PICTURES = {"gantt": 2, "load": 2, "completion": 1, "training": 2}
COLUMNS = "JobID|User|Account|Partition|JobName|State|Submit|Eligible|Start|End|NNodes|NodeList|AllocTRES|Comment"


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The page of two jobs: an elastic one that was shrunk, with a name that bites, and a rigid one that waited."""
    folder = tmp_path_factory.mktemp("report")
    name = HOSTILE.replace("|", "")
    day = "2026-11-30T"
    lines = [
        COLUMNS,
        f"7|user1|acc|gpu|{name}|RESIZING|{day}10:00:00|{day}10:00:00|{day}10:00:10|{day}10:05:00|2|c[1-2]|gres/gpu=4,node=2|ones:nodes=1-2",
        f"7|user1|acc|gpu|{name}|COMPLETED|{day}10:05:00|{day}10:05:00|{day}10:05:00|{day}10:20:00|1|c1|gres/gpu=2,node=1|ones:nodes=1-2",
        f"8|user2|acc|gpu|rigid|FAILED|{day}10:00:30|{day}10:00:30|{day}10:05:02|{day}10:10:02|1|c2|gres/gpu=2,node=1|",
    ]
    (folder / "month.psv").write_text("\n".join(lines) + "\n")
    _write_journal(folder / "journal.sqlite", name)
    told = report(folder / "month.psv", "--journal", folder / "journal.sqlite", "--html", folder / "page.html")
    assert (told.exit_code, told.stdout) == (0, "")
    return folder / "page.html"


def report(dump, *options):
    return CliRunner().invoke(ones, ["report", "--from", str(dump), *map(str, options)])


def at_s(clock: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(f"2026-11-30T{clock}").timestamp()


def _write_journal(path: Path, name: str) -> None:
    """Job 7 trains from ten past on, is shrunk at five past, and its loss falls."""
    nodes = tuple(NodeView(f"c{number}", 2, True) for number in (1, 2))
    job = JobView(
        job_id="7", user="user1", name=name, state=JobState.RUNNING, asked_nodes=2, gpus_per_node=2,
        nodes=("c1", "c2"), wish=parse_wish("ones:nodes=1-2"), elastic=True, batch=128,
        submit_s=at_s("10:00:00"), start_s=at_s("10:00:10"),
    )  # fmt: skip
    shrink = Shrink(job_id="7", generation=1, keep=("c1",), batch=64, reason="job 8 waits")
    with Journal.open(path) as journal:
        journal.begin_run(Run(policy="equal", seed=1), at_s("10:00:00"))
        for tick, (clock, samples, loss) in enumerate(
            [("10:01:00", 1000, 2.0), ("10:04:50", 5000, 0.5), ("10:15:00", 9000, 0.25)], start=1
        ):
            progress = Progress(samples=samples, total_samples=10000, samples_per_s=20.0, loss=loss)
            view = ClusterView(at_s(clock), nodes, (msgspec.structs.replace(job, progress=progress),))
            decisions = (Decision(job_id="7", reason="job 8 waits", action=shrink),) if tick == 2 else ()
            journal.record(
                Tick(
                    tick=tick, now_s=view.now_s, took_s=0, view=view, plan=Plan(), memory=Memory(), decisions=decisions
                )
            )
        journal.end(Outcome("7", 1, Status.DONE, "trains on"), at_s("10:05:01"))


def test_every_picture_is_there_and_nothing_is_asked_of_a_network(browser, page):
    tab = browser.tab()
    tab.go(page.as_uri())
    assert tab.problems == []
    assert tab.requests == [page.as_uri()]
    for section, least in PICTURES.items():
        sizes = tab.run(
            f"[...document.querySelectorAll('#{section} .plot')]"
            ".map(p => [...p.querySelectorAll('svg .line, svg .box')]"
            ".filter(s => s.getBoundingClientRect().width + s.getBoundingClientRect().height > 0).length)"
        )
        assert len(sizes) >= least, section
        assert all(sizes), section  # each draws something of its own
    assert tab.run("document.querySelectorAll('#losses .bars rect').length") > 0
    assert tab.run("document.querySelectorAll('#movers tbody tr').length") == 1
    assert tab.run("document.querySelectorAll('#jobs tbody tr').length") == 3


def test_what_a_user_typed_is_text(browser, page):
    tab = browser.tab()
    tab.go(page.as_uri())
    assert tab.run("document.querySelectorAll('script, img').length") == 0
    assert tab.run("document.body.innerText.includes('<script>alert(1)</script>')")
    assert "\u202e" not in page.read_text()
    assert "\x07" not in page.read_text()


def test_the_boxes_tell_of_the_move_and_their_time_is_that_of_the_report(page):
    says = [html.unescape(found) for found in re.findall(r"<title>(job .*?)</title>", page.read_text())]
    assert any("2 GPUs on 1 node, batch 64" in told and "shrink: job 8 waits; COMPLETED" in told for told in says)
    gantt = re.search(r'<section id="gantt">.*?</section>', page.read_text(), re.DOTALL)[0].split("plain Slurm")[0]
    widths = [float(width) for width in re.findall(r'<rect [^>]*?width="([0-9.]+)" height="[0-9.]+"', gantt)]
    # Boxes: job 7 on c1 and c2 for 290 s, on c1 for 900 s, job 8 on c2 for 300 s, in a picture of 1200 s or more.
    assert [width / widths[0] for width in widths] == pytest.approx([1, 1, 900 / 290, 300 / 290], rel=0.01)


def test_beside_it_stands_what_plain_slurm_would_have_done_with_the_same_jobs(browser, page):
    tab = browser.tab()
    tab.go(page.as_uri())
    rows = tab.run("[...document.querySelectorAll('#comparison tbody tr')].map(r => r.innerText.split('\\t'))")
    assert [cells[0] for cells in rows][:2] == ["as it was", "plain Slurm, simulated"]
    assert {cells[1] for cells in rows} == {"2"}
    assert rows[0][2:4] == ["00:14:46", "00:14:46"]  # (20:00 + 09:32) / 2
    said = tab.run("document.querySelector('#comparison').innerText")
    assert "knows no priorities" in said


def test_it_fits_a_phone_a_tablet_and_a_screen(browser, page):
    tab = browser.tab(width=390)
    tab.go(page.as_uri())
    for width in (390, 820, 1440):
        tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        assert tab.run("document.documentElement.scrollWidth") <= width
        sizes = tab.run("[...document.querySelectorAll('.plot .x span')].map(s => getComputedStyle(s).fontSize)")
        assert set(sizes) == {"12px"}  # words do not shrink with the picture


def test_it_is_dark_where_the_reader_is_and_light_on_paper(browser, page):
    ground = "getComputedStyle(document.body).backgroundColor"
    tab = browser.tab(dark=True)
    tab.go(page.as_uri())
    assert tab.run(ground) == "rgb(20, 24, 28)"
    tab.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run(ground) == "rgb(255, 255, 255)"
    assert tab.pdf().startswith(b"%PDF-")


def test_a_place_where_nothing_can_be_written_is_wrong_use(page, tmp_path):
    told = report(page.parent / "month.psv", "--html", tmp_path / "nowhere" / "page.html")
    assert told.exit_code == 2
    assert "cannot write" in told.stderr


def test_where_nothing_can_be_simulated_the_page_says_why(tmp_path):
    (tmp_path / "month.psv").write_text(
        f"{COLUMNS}\n"
        "9|user1|acc|gpu|waits|PENDING|2026-11-30T10:00:00|2026-11-30T10:00:00|Unknown|Unknown|1|None assigned||\n"
    )
    assert report(tmp_path / "month.psv", "--html", tmp_path / "page.html").exit_code == 0
    assert "Not simulated: no job is left to be simulated (1: it never started)" in (tmp_path / "page.html").read_text()


def test_gpus_that_are_drawn_are_gpus_that_were_held():
    """Four jobs on two nodes with four GPUs each: no two boxes of a node overlap, and all GPU-seconds are there."""
    rows = [
        row("1", submit=0, start=0, end=100, nodes=("n1", "n2"), gpus=4),
        row("2", submit=0, start=0, end=50, nodes=("n1",), gpus=2),
        row("3", submit=0, start=50, end=100, nodes=("n1",), gpus=1),
        row("4", submit=0, start=60, end=90, nodes=("n2",), gpus=2),
    ]
    timeline = timeline_of(histories(rows, now_s=100, gpus_per_node={}))
    assert timeline.gpus_by_node() == {"n1": 4, "n2": 4}
    drawn = [
        (node, low + lane, held.from_s, held.until_s)
        for _, held, node, low, count in lanes(timeline)
        for lane in range(count)
    ]
    assert (
        sum(until_s - from_s for _, _, from_s, until_s in drawn)
        == 4 * 100 + 2 * 50 + 50 + 2 * 30
        == summary(timeline, 8).gpu_s
    )
    for node, lane, from_s, _ in drawn:
        assert lane < 4
        assert sum(other[:2] == (node, lane) and other[2] <= from_s < other[3] for other in drawn) == 1


def test_figures_of_the_comparison_are_those_of_its_jobs():
    """Two rigid jobs of one node each on one node: plain Slurm runs them one after the other, as it was."""
    rows = [
        row("1", submit=1000, start=1000, end=1100, nodes=("n1",), gpus=2),
        row("2", submit=1000, start=1100, end=1400, nodes=("n1",), gpus=2),
    ]
    found = histories(rows, now_s=1400, gpus_per_node={})
    told = beside(found, rows, Site(), now_s=1400)
    assert [timeline.name for timeline in told.timelines] == ["as it was", "plain Slurm, simulated"]
    really, slurm = (summary(timeline, told.gpus) for timeline in told.timelines)
    assert (really.mean_completion_s, really.mean_wait_s, really.utilisation) == (250, 50, 1.0)
    assert msgspec.structs.replace(slurm, name="as it was") == really


def test_many_boxes_are_drawn_as_one_path_a_colour(tmp_path):
    rows = [row(str(number), submit=0, start=number, end=number + 1, nodes=("n1",), gpus=1) for number in range(5000)]
    jobs = histories(rows, now_s=5000, gpus_per_node={})
    from ones_slurm.report.page import report_page

    text = report_page(jobs, site="big", now_s=5000, gpus_per_node={})
    gantt = re.search(r'<section id="gantt">.*?</section>', text, re.DOTALL)[0]
    assert gantt.count("<rect") == 0
    assert 1 < gantt.count('<path class="c') <= 10
    assert len(text) < 2_000_000


def test_equal_data_give_equal_bytes(page, tmp_path):
    told = report(
        page.parent / "month.psv", "--journal", page.parent / "journal.sqlite", "--html", tmp_path / "again.html"
    )
    assert told.exit_code == 0
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
