"""What Prometheus reads: names, units and few series; and the dashboard that draws them."""

import json
import pathlib
import re

import msgspec
import pytest
from desk import latest_tick
from prometheus_client.parser import text_string_to_metric_families

from ones_slurm.daemon.metrics import Metrics
from ones_slurm.engine.loop import Latest
from ones_slurm.model.cluster import JobState
from ones_slurm.model.plan import Outcome, Requeue, Shrink, Status

DASHBOARD = pathlib.Path(__file__).parents[2] / "site_configs" / "grafana.json"


def samples(metrics):
    """(name, labels) -> value"""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
    }


def value(metrics, name, **labels):
    return samples(metrics)[name, tuple(sorted(labels.items()))]


@pytest.fixture
def metrics():
    """Two running jobs of two nodes with two GPUs each, one job that waits, one node that is down."""
    latest = latest_tick({"11": "root", "12": "nobody"})
    view = latest.view
    waits = msgspec.structs.replace(
        view.jobs[0], job_id="13", state=JobState.PENDING, nodes=(), asked_nodes=3, submit_s=-99.0, elastic=False
    )
    down = msgspec.structs.replace(view.nodes[0], name="down", usable=False)
    view = msgspec.structs.replace(view, jobs=(*view.jobs, waits), nodes=(*view.nodes, down))
    latest = msgspec.structs.replace(latest, view=view)
    told = Metrics(lambda: latest)
    told.began([Shrink(job_id="11", generation=2, keep=("n0",), batch=64)], 100.0)
    told.began([Requeue(job_id="12", generation=2, nodes=1, batch=64)], 100.0)
    told.ended([Outcome("11", 2, Status.ACCEPTED)], 101.0)
    told.ended([Outcome("11", 2, Status.DONE)], 107.0)
    told.ended([Outcome("12", 2, Status.FAILED)], 200.0)
    return told


def test_the_sums_are_those_of_the_view(metrics):
    assert value(metrics, "ones_jobs", state="running", elastic="yes") == 2
    assert value(metrics, "ones_jobs", state="pending", elastic="no") == 1
    assert [value(metrics, "ones_gpus", state=state) for state in ("held", "free", "unusable")] == [8, 0, 2]
    assert [value(metrics, "ones_nodes", state=state) for state in ("held", "free", "unusable")] == [4, 0, 1]
    assert value(metrics, "ones_waiting_gpus") == 6
    assert value(metrics, "ones_oldest_wait_seconds") == 100.0
    assert value(metrics, "ones_trouble") == 0


def test_moves_are_counted_and_those_that_are_done_timed(metrics):
    assert value(metrics, "ones_moves_total", status="done") == 1
    assert value(metrics, "ones_moves_total", status="failed") == 1
    assert value(metrics, "ones_moves_total", status="refused") == 0
    assert value(metrics, "ones_move_seconds_sum", kind="shrink") == 7.0
    assert ("ones_move_seconds_sum", (("kind", "requeue"),)) not in samples(metrics)


def test_every_name_is_ours_and_no_label_grows_with_the_jobs(metrics):
    found = samples(metrics)
    assert all(name.startswith("ones_") for name, _ in found)
    labels = {label for _, pairs in found for label, _ in pairs}
    assert labels <= {"state", "elastic", "status", "kind", "le", "version"}
    assert len(found) < 80


def test_units_are_base_units(metrics):
    assert not [name for name, _ in samples(metrics) if re.search(r"_(ms|minutes|hours|mib|gib|percent)(_|$)", name)]


def test_before_the_first_tick_there_is_a_page_too():
    told = Metrics(lambda: Latest(trouble="Slurm has not answered yet"))
    assert value(told, "ones_trouble") == 1
    assert ("ones_last_tick_timestamp_seconds", ()) not in samples(told)


def test_the_dashboard_names_series_that_exist(metrics):
    board = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    there = {name for name, _ in samples(metrics)}
    named = [set(re.findall(r"\bones_\w+", expression)) for expression in expressions]
    assert all(named)
    assert set().union(*named) <= there
    labels = {label for _, pairs in samples(metrics) for label, _ in pairs} | {"job"}
    used = re.findall(r"by \(([^)]*)\)|(\w+)=~?\"", " ".join(expressions))
    assert {word.strip() for by, label in used for word in (by or label).split(",")} <= labels


def test_the_panels_of_the_dashboard_do_not_overlap():
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
