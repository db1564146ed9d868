"""The peers on views small enough to decide by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.peers.consolidated import Consolidated
from ones_slurm.policy.peers.easy import Easy
from ones_slurm.policy.peers.elastic_dp import ElasticDp, solve
from ones_slurm.policy.peers.goodput import Limits, fit, table_of
from ones_slurm.policy.peers.in_order import FirstFit, StrictFifo
from ones_slurm.policy.peers.optimus import Optimus
from ones_slurm.policy.peers.placing import take_consolidated, take_emptiest
from ones_slurm.policy.peers.pollux import Pollux
from ones_slurm.policy.peers.srtf import Srtf
from ones_slurm.policy.peers.tiresias import THRESHOLD_GPU_S, Tiresias

NOW_S = 10_000.0
CHANCE = np.random.default_rng(1)


def job(job_id, gpus=1, *, at=(), limit_s=None, started_s=0.0, low=None, high=None, **more):
    allocation = tuple(at)
    return JobView(
        job_id=job_id,
        user="u",
        state=JobState.RUNNING if allocation else JobState.PENDING,
        asked_nodes=1,
        asked_gpus=gpus,
        gpus_per_node=1,
        nodes=tuple(name for name, _ in allocation),
        allocation=allocation,
        elastic=True,
        wish=Wish(gpus=Bounds(low or gpus, high or gpus)),
        start_s=started_s if allocation else None,
        time_limit_s=limit_s,
        generation=1 if allocation else 0,
        **more,
    )


def view(*jobs, nodes=2):
    names = [NodeView(f"n{number}", 4, usable=True) for number in range(1, nodes + 1)]
    return ClusterView(now_s=NOW_S, nodes=tuple(names), jobs=jobs, can_reallocate=True)


def sizes(policy, seen):
    """What the plan changes: GPUs by job; the guard must have nothing against it."""
    plan = policy.decide(seen, CHANCE)
    check_plan(seen, plan)
    return {target.job_id: sum(gpus for _, gpus in target.allocation) for target in plan.targets}


def test_strict_fifo_lets_nobody_past_the_first_that_does_not_fit():
    seen = view(job("runs", 6, at=[("n1", 4), ("n2", 2)]), job("large", 4), job("small", 1))
    assert sizes(StrictFifo(), seen) == {}
    assert sizes(FirstFit(), seen) == {"small": 1}


def test_easy_lets_past_who_ends_in_time_or_needs_only_what_is_left_over():
    runs = job("runs", 6, at=[("n1", 4), ("n2", 2)], started_s=NOW_S, limit_s=100)
    first = job("first", 7, limit_s=50)
    assert sizes(Easy(), view(runs, first, job("in time", 2, limit_s=100))) == {"in time": 2}
    assert sizes(Easy(), view(runs, first, job("spare", 1, limit_s=1e6))) == {"spare": 1}
    assert sizes(Easy(), view(runs, first, job("too long", 2, limit_s=101))) == {}
    assert sizes(Easy(), view(runs, first, job("without limit", 2))) == {}


def test_srtf_stops_the_longest_for_a_shorter_one_unless_that_would_lose_its_work():
    left_s = {"long": 500.0, "short": 10.0}
    seen = view(job("long", 8, at=[("n1", 4), ("n2", 4)]), job("short", 4))
    assert sizes(Srtf(lambda job_id, gpus: left_s[job_id]), seen) == {"long": 0, "short": 4}
    held = view(job("long", 8, at=[("n1", 4), ("n2", 4)], requeueable=False), job("short", 4))
    assert sizes(Srtf(lambda job_id, gpus: left_s[job_id]), held) == {}


def test_tiresias_serves_those_first_who_had_less_than_the_threshold():
    had_much = job("much", 8, at=[("n1", 4), ("n2", 4)], started_s=NOW_S - THRESHOLD_GPU_S / 8)
    assert sizes(Tiresias(), view(had_much, job("new", 4))) == {"much": 0, "new": 4}
    had_less = job("less", 8, at=[("n1", 4), ("n2", 4)], started_s=NOW_S - THRESHOLD_GPU_S / 8 + 1)
    assert sizes(Tiresias(), view(had_less, job("new", 4))) == {}


def test_service_of_earlier_generations_counts_as_well():
    stopped = job("stopped", 8, served_gpu_s=THRESHOLD_GPU_S)
    assert sizes(Tiresias(), view(stopped, job("new", 8))) == {"new": 8}


def test_consolidated_places_on_one_node_and_waits_rather_than_share_a_network():
    spans = job("spans", 6, at=[("n1", 3), ("n2", 3)], limit_s=1e6)
    seen = view(spans, job("wide", 5, limit_s=10, submit_s=NOW_S), nodes=3)
    assert sizes(Consolidated(), seen) == {}
    assert sizes(Consolidated(), view(spans, job("snug", 4, limit_s=10), nodes=3)) == {"snug": 4}
    patience_over = view(spans, job("wide", 5, limit_s=10, submit_s=0.0), nodes=3)
    assert sizes(Consolidated(), patience_over) == {"wide": 5}


def training(job_id, gpus, at, *, exchange_s=0.0, left=0.5, high=8):
    """A job that measured 1 s of compute a step at local batch 8, on one GPU and on `gpus`."""
    speeds = [Speed(1, 1, 8, 1.0, 0.0), Speed(len(at), gpus, 8, 1.0 + exchange_s, exchange_s)]
    told = {"grad_sqr": 1.0, "grad_var": 1000.0, "min_local_batch": 4.0, "max_local_batch": 8.0, "max_batch": 64.0}
    progress = Progress(samples=int(1000 * (1 - left)), total_samples=1000, base_batch=8, metrics=told)
    return job(
        job_id, gpus, at=at, low=1, high=high, speeds=tuple(speeds[:1] if gpus == 1 else speeds), progress=progress
    )


def test_optimus_gives_the_next_gpu_to_whoever_saves_the_most_time():
    scales = training("scales", 2, [("n1", 2)])
    does_not = training("does not", 2, [("n2", 2)], exchange_s=30.0)
    found = sizes(Optimus(), view(scales, does_not))
    assert found["scales"] > found["does not"]


def test_elastic_dp_gives_gpus_to_those_that_scale():
    found = sizes(
        ElasticDp(), view(training("scales", 2, [("n1", 2)]), training("does not", 2, [("n2", 2)], exchange_s=30.0))
    )
    assert found == {"scales": 4, "does not": 1}


@given(st.lists(st.lists(st.floats(0, 10), min_size=7, max_size=7), min_size=1, max_size=3))
def test_the_dynamic_programme_finds_what_trying_everything_finds(factors):
    tables = [np.array(factor) for factor in factors]
    chosen, worth = solve(tables, 6)
    assert sum(chosen) <= 6
    assert worth == pytest.approx(sum(factor[size] for factor, size in zip(factors, chosen, strict=True)))

    def best(left, rest):
        return 0.0 if not rest else max(rest[0][k] + best(left - k, rest[1:]) for k in range(left + 1))

    assert worth == pytest.approx(best(6, factors))


def test_pollux_starts_a_new_job_on_one_gpu_and_doubles_one_that_was_measured():
    assert sizes(Pollux(), view(job("new", 1, low=1, high=8))) == {"new": 1}
    assert sizes(Pollux(), view(training("old", 2, [("n1", 2)]))) == {"old": 4}


def test_pollux_gives_the_gpus_to_the_job_that_scales():
    found = sizes(
        Pollux(), view(training("scales", 4, [("n1", 4)]), training("does not", 4, [("n2", 4)], exchange_s=30.0))
    )
    assert found["scales"] > found["does not"]


def test_the_model_of_a_job_that_follows_it_is_found_again():
    def step_s(nodes, gpus, local):
        sync = 0.0 if gpus == 1 else (0.2 + 0.01 * (gpus - 2)) * (1.5 if nodes > 1 else 1.0)
        return 0.1 + 0.02 * local + sync

    shapes = [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16)]
    speeds = tuple(
        Speed(nodes, gpus, local, step_s(nodes, gpus, local), step_s(nodes, gpus, local) - 0.1 - 0.02 * local)
        for nodes, gpus in shapes
        for local in (8, 32)
    )
    model = fit(speeds)
    _, modelled = model.step_s(np.array([True]), np.array([12.0]), np.array([16.0]))
    assert modelled[0] == pytest.approx(step_s(3, 12, 16), rel=0.02)


def test_a_table_never_goes_beyond_the_batches_that_the_job_allows():
    seen = training("a", 4, [("n1", 4)])
    table = table_of(seen, Limits(8, 512, 4, 8), 64)
    counts = np.arange(1, 65)
    assert (table.batch[0, 1:] <= 512).all()
    assert (table.batch[0, 1:] / counts >= 4).all()
    assert table.goodput[:, 0].tolist() == [0.0, 0.0]


def test_placing():
    free = {"n1": 2, "n2": 4, "n3": 3}
    assert take_consolidated(dict(free), 2) == (("n1", 2),)
    assert take_consolidated(dict(free), 3) == (("n3", 3),)
    assert take_emptiest(dict(free), 6) == (("n2", 4), ("n3", 2))
