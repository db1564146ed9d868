"""Plans with places and moves priced, against other ways to plan and against trying everything."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ones_views import job, view

from ones_slurm.engine.guard import check_plan
from ones_slurm.model.cluster import NodeView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.policy.ones.operators import pad
from ones_slurm.policy.ones.plans import plan_of
from ones_slurm.policy.ones.policy import Ones, cost_of
from ones_slurm.policy.ones.rule import psrpt_sizes
from ones_slurm.policy.ones.score import options_of
from ones_slurm.policy.ones.situation import situation_of
from ones_slurm.policy.peers.tiresias import Tiresias
from ones_slurm.policy.psrpt import Psrpt

PARTITIONS = (("a",), ("b",), ("a", "b"))


def crowded(seed, nodes=8, running=6, waiting=6, most=None):
    """Jobs on scattered GPUs, of which some fill a node and some a corner of one."""
    rng = np.random.default_rng(seed)
    free = dict.fromkeys(range(nodes), 4)
    jobs = []
    for number in range(running):
        wanted = asked = int(rng.choice([1, 1, 2, 4, 8]))
        held: list[tuple[int, int]] = []
        for node in rng.permutation(nodes).tolist():
            take = min(free[node], wanted)
            if take:
                held.append((node, take))
                free[node] -= take
                wanted -= take
        left = int(rng.lognormal(11.5, 1.5)) + 1000
        more = {"high": most or 32, "asked_gpus": asked, "start_s": 9000.0 if held else None, "submit_s": 8000.0}
        jobs.append(job(f"r{number}", *sorted(held), left=left, **more))
    lefts = rng.lognormal(11.5, 1.5, waiting).astype(int) + 1000
    news = [job(f"w{number}", left=int(left), high=most or 32, submit_s=9900.0) for number, left in enumerate(lefts)]
    return view(nodes, *jobs, *news)


def keep(seen):
    return Plan(tuple(Target(job_id=one.job_id, nodes=len(one.nodes), allocation=one.allocation) for one in seen.jobs))


def greedy(seen):
    """Everybody anew, in order of service, the cheapest size that still fits."""
    at = situation_of(seen)
    options = options_of(at, psrpt_sizes(at))
    choice = pad(options, np.zeros((1, len(at.jobs)), int), options.order)[0]
    return plan_of(seen, at, options.units[choice], options.pool[choice])


def least_attained_service(seen):
    """What Tiresias says, and where it has no opinion all as it is."""
    said = {target.job_id: target for target in Tiresias().decide(seen, np.random.default_rng(0)).targets}
    return Plan(tuple(said.get(target.job_id, target) for target in keep(seen).targets))


@pytest.mark.parametrize("search", [True, False])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), nodes=st.integers(2, 10), running=st.integers(0, 8), waiting=st.integers(0, 8))
def test_no_plan_is_worse_by_its_own_score_than_keeping_all_or_than_the_rule(search, seed, nodes, running, waiting):
    seen = crowded(seed, nodes, running, waiting)
    plan = Ones(search=search).decide(seen, np.random.default_rng(seed))
    check_plan(seen, plan)
    mine = cost_of(seen, plan)
    for other in (keep(seen), Psrpt(history=True).decide(seen, np.random.default_rng(0))):
        assert mine <= cost_of(seen, other) * (1.0 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_with_several_partitions_and_types_of_gpus_keeping_all_is_always_a_plan_and_never_a_better_one(seed):
    rng = np.random.default_rng(seed)
    seen = crowded(seed)
    kinds = [(str(rng.choice(["old", "new"])), PARTITIONS[int(rng.integers(3))]) for _ in seen.nodes]
    there = tuple(
        NodeView(node.name, 4, True, gpu_type=name, partitions=partitions)
        for node, (name, partitions) in zip(seen.nodes, kinds, strict=True)
    )
    of = {node.name: node.partitions for node in there}
    jobs = tuple(
        msgspec.structs.replace(one, partition=of[one.nodes[0]][0] if one.nodes else str(rng.choice(["a", "b"])))
        for one in seen.jobs
    )
    seen = msgspec.structs.replace(seen, nodes=there, jobs=jobs)
    plan = Ones().decide(seen, np.random.default_rng(seed))
    check_plan(seen, plan)
    planned = {target.job_id for target in plan.targets}
    kept = Plan(tuple(target for target in keep(seen).targets if target.job_id in planned))
    assert cost_of(seen, plan) <= cost_of(seen, kept) * (1.0 + 1e-9) < np.inf


def test_it_is_never_worse_than_greedy_or_least_attained_service_or_its_own_seeds_alone():
    for seed in range(15):
        seen = crowded(seed)
        mine = cost_of(seen, Ones().decide(seen, np.random.default_rng(seed)))
        seeds = cost_of(seen, Ones(search=False).decide(seen, np.random.default_rng(seed)))
        others = [seeds, cost_of(seen, greedy(seen)), cost_of(seen, least_attained_service(seen))]
        assert mine <= min(others) * (1.0 + 1e-9), seed


def every_plan(seen):
    """All ways to give four jobs one, two, four or eight GPUs of two nodes with four each, or none."""
    ways = [(a, b) for a in range(5) for b in range(5) if a + b in {0, 1, 2, 4, 8}]
    names = [node.name for node in seen.nodes]
    for split in itertools.product(ways, repeat=len(seen.jobs)):
        if all(sum(one[node] for one in split) <= 4 for node in (0, 1)):
            yield Plan(
                tuple(
                    Target(
                        job_id=one.job_id,
                        nodes=sum(map(bool, given)),
                        allocation=tuple((name, gpus) for name, gpus in zip(names, given, strict=True) if gpus),
                    )
                    for one, given in zip(seen.jobs, split, strict=True)
                )
            )


def test_on_two_nodes_it_comes_within_three_hundredths_of_trying_everything():
    for seed in range(5):
        seen = crowded(seed, nodes=2, running=2, waiting=2, most=8)
        best = min(cost_of(seen, plan) for plan in every_plan(seen))
        mine = cost_of(seen, Ones().decide(seen, np.random.default_rng(seed)))
        assert mine <= best * 1.03, seed
