"""Whole runs through the live engine with its guard on: nothing impossible is ever planned, done or seen."""

import hashlib
import subprocess
import sys

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ones_slurm.engine.guard import check_view
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.replay import replay
from ones_slurm.model.cluster import NodeView
from ones_slurm.model.errors import Failed, UsageError
from ones_slurm.model.plan import Plan
from ones_slurm.model.settings import Costs
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.registry import policy_named
from ones_slurm.sim.faults import draw_outages
from ones_slurm.sim.job import Submission
from ones_slurm.sim.rigid import TracedRun
from ones_slurm.sim.synth import synthesise
from ones_slurm.sim.trace import Row
from ones_slurm.study.run import run
from ones_slurm.study.setting import Setting, simulate, simulate_jobs

PEERS = ["consolidated", "easy", "elastic-dp", "first-fit", "optimus", "pollux", "srtf", "strict-fifo", "tiresias"]
MIX = {"bert-mrpc": 1.0, "resnet18-cifar10": 2.0, "vgg16-cifar10": 1.0}


@st.composite
def workloads(draw: st.DrawFn, *, even: bool = False) -> tuple[list[NodeView], list[Submission], int]:
    """A few nodes of two GPU types in one or two partitions, jobs of all kinds that fit, a seed for failures (0: none).

    `even` nodes of one partition have as many GPUs.
    """
    pools = draw(st.sampled_from([("",), ("a",), ("a", "b")]))
    nodes, totals = [], {}
    for pool in pools:
        sizes = st.just(draw(st.sampled_from([2, 4]))) if even else st.sampled_from([2, 4, 8])
        for _ in range(draw(st.integers(1, 4 // len(pools)))):
            kind = draw(st.sampled_from(["", "slow"]))
            gpus = draw(sizes)
            nodes.append(
                NodeView(f"n{len(nodes)}", gpus, usable=True, gpu_type=kind, partitions=(pool,) if pool else ())
            )
            totals[pool] = totals.get(pool, 0) + gpus
    work = []
    for number in range(draw(st.integers(1, 8))):
        pool = draw(st.sampled_from(pools))
        total = totals[pool]
        gpus = draw(st.integers(1, total))
        low, high = (1, total) if draw(st.booleans()) else (gpus, gpus)
        run_s = float(draw(st.integers(1, 5000)))
        work.append(
            Submission(
                job_id=f"j{number}",
                submit_s=float(draw(st.integers(0, 3000))),
                gpus=gpus,
                begin=lambda run_s=run_s, gpus=gpus, talks=low < high: TracedRun(run_s, gpus, talks=talks),
                wish=Wish(gpus=Bounds(low, high)),
                requeueable=draw(st.booleans()),
                partition=pool,
                time_limit_s=run_s * draw(st.sampled_from([0.5, 1.0, 10.0])),
            )
        )
    return nodes, work, draw(st.integers(0, 3))


class Watched:
    """A cluster whose every view is checked once more, and whose work is compared from view to view."""

    def __init__(self, cluster):
        self.cluster, self.work, self.now_s = cluster, {}, 0.0

    def __getattr__(self, name):
        return getattr(self.cluster, name)

    def observe(self):
        view = self.cluster.observe()
        check_view(view)
        assert view.now_s >= self.now_s
        self.now_s = view.now_s
        for job in self.cluster.live.values():
            job.catch_up(view.now_s)
            lost = job.lost_work - self.work.get(job.job_id, (0.0, 0.0))[1]
            assert job.truth.work >= self.work.get(job.job_id, (0.0, 0.0))[0] - lost - 1e-6
            self.work[job.job_id] = (job.truth.work, job.lost_work)
            bounds = job.what.wish.gpus if job.what.wish is not None else None
            assert not job.allocation or bounds is None or bounds.low <= job.gpus <= bounds.high
        held = {}
        for job in self.cluster.live.values():
            for name, gpus in job.allocation:
                held[name] = held.get(name, 0) + gpus
        for name, node in self.cluster.nodes.items():
            assert held.get(name, 0) + self.cluster.free[name] == (node.gpus if node.usable else 0)
        return view


@pytest.mark.parametrize("policy", [peer for peer in PEERS if peer != "pollux"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workload=workloads())
def test_no_peer_breaks_an_invariant_whatever_comes_and_whatever_breaks(policy, workload):
    nodes, work, seed = workload
    run_one(policy, nodes, work, seed)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workload=workloads())
def test_nor_does_pollux_which_takes_its_time(workload):
    nodes, work, seed = workload
    run_one("pollux", nodes, work, seed)


def run_one(policy, nodes, work, seed):
    from ones_slurm.policy.peers.partitions import PerPartition
    from ones_slurm.policy.peers.srtf import Srtf
    from ones_slurm.sim.shared import SharedCluster

    names = [node.name for node in nodes]
    outages = draw_outages(names, horizon_s=8000, mean_up_s=3000, mean_down_s=600, seed=seed) if seed else ()
    costs, speeds = Costs(start_s=30, save_s=5), {"slow": 0.5}
    cluster = Watched(SharedCluster(nodes, work, costs, every_s=60.0, outages=outages, speeds=speeds))
    chosen = PerPartition(Srtf(cluster.remaining_s)) if policy == "srtf" else policy_named(policy)
    run(cluster, chosen, interval_s=60.0, seed=seed)
    assert len(cluster.ended) == len(work)
    assert all(job.end_s >= job.what.submit_s for job in cluster.ended)


@pytest.mark.parametrize("policy", ["slurm", "fifo", "equal", "psrpt"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workload=workloads(even=True))
def test_no_invariant_breaks_in_an_imagined_slurm(policy, workload):
    nodes, work, seed = workload
    setting = Setting(
        whole_nodes=True,
        by_clock=False,
        seed=seed,
        mean_up_s=3000.0 if seed else 0.0,
        mean_down_s=600.0,
        interval_s=30.0,
    )
    result = simulate_jobs(work, policy, setting, nodes)
    assert result.figures.jobs == len(work)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workload=workloads(even=True))
def test_nor_with_the_evolutionary_search_which_takes_its_time(workload):
    nodes, work, _ = workload
    setting = Setting(whole_nodes=True, by_clock=False, interval_s=60.0)
    assert simulate_jobs(work, "ones", setting, nodes).figures.jobs == len(work)


class Overbooks:
    """A broken policy: it gives the same GPUs to everybody."""

    name = "overbooks"

    def decide(self, view, rng):
        from ones_slurm.policy.peers.placing import put

        return Plan(tuple(put(job, (("n0", 4),), "mine") for job in view.jobs))


def test_the_guard_stops_a_policy_that_gives_a_gpu_twice():
    from ones_slurm.sim.shared import SharedCluster

    work = [
        Submission(job_id=name, submit_s=0, gpus=4, begin=lambda: TracedRun(9, 4), wish=Wish(gpus=Bounds(4, 4)))
        for name in "ab"
    ]
    cluster = SharedCluster([NodeView("n0", 4, usable=True)], work, Costs())
    with pytest.raises(Failed, match="8 GPUs of node n0 are given, and it has 4"):
        run(cluster, Overbooks())


def test_a_policy_that_starts_nothing_is_told_so_instead_of_running_for_ever():
    from ones_slurm.sim.shared import SharedCluster
    from ones_slurm.study.setting import LeaveAlone

    work = [Submission(job_id="a", submit_s=0, gpus=1, begin=lambda: TracedRun(9, 1), wish=Wish(gpus=Bounds(1, 1)))]
    with pytest.raises(Failed, match="policy slurm starts no more jobs at 0 s, and 1 wait"):
        run(SharedCluster([NodeView("n0", 4, usable=True)], work, Costs()), LeaveAlone())


@pytest.mark.parametrize("policy", ["tiresias", "pollux", "optimus", "psrpt", "ones", "ones-paper"])
def test_the_same_seed_gives_the_same_run_and_its_journal_replays_to_the_same_plans(tmp_path, policy):
    rows = synthesise(8, hours=0.5, mix=MIX, largest=8, seed=7)
    setting = Setting(nodes=2, seed=3)
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        first = simulate(rows, policy, setting, journal=journal)
    second = simulate(rows, policy, setting)
    assert msgspec.json.encode(first.jobs) == msgspec.json.encode(second.jobs)
    with Journal.read(tmp_path / "journal.sqlite") as journal:
        ticks, difference = replay(journal, policy_named)
    assert difference is None
    assert ticks == first.figures.decisions


def test_the_same_bytes_come_out_of_another_process_with_other_hashes():
    code = (
        "import msgspec, hashlib; from ones_slurm.sim.synth import synthesise;"
        "from ones_slurm.study.setting import Setting, simulate;"
        f"rows = synthesise(6, hours=0.3, mix={MIX!r}, largest=8, seed=7);"
        "runs = [simulate(rows, policy, Setting(nodes=2)).jobs for policy in ('pollux', 'tiresias')];"
        "print(hashlib.sha256(msgspec.json.encode(runs)).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) == len(hashlib.sha256().hexdigest()) + 1


@pytest.mark.parametrize("policy", ["psrpt", "ones"])
def test_a_job_of_a_single_odd_size_runs_at_it(policy):
    """Eleven of sixteen GPUs are no rung of any ladder of sizes."""
    result = simulate([Row(job_id="a", submit_s=0, gpus=11, duration_s=100)], policy, Setting(nodes=4))
    assert [span.gpus for span in result.cluster.ended[0].spans] == [11]
    assert result.figures.mean_s == 100


def test_a_later_start_up_makes_every_elastic_policy_slower():
    rows = synthesise(12, hours=1, mix={"resnet18-cifar10": 1.0}, largest=8, seed=2)
    quick, slow = (
        simulate(rows, "psrpt", Setting(nodes=2, costs=Costs(start_s=cost, save_s=0, rebatch_s=0))).figures.mean_s
        for cost in (1.0, 120.0)
    )
    assert quick < slow


def test_decisions_grow_with_events_and_not_with_seconds():
    def decisions(stretch):
        rows = [Row(job_id=f"j{n}", submit_s=100.0 * n * stretch, gpus=1, duration_s=10.0 * stretch) for n in range(20)]
        return simulate(rows, "easy", Setting()).figures.decisions

    assert decisions(1000) <= decisions(1) + 40


def test_a_policy_of_the_other_kind_of_cluster_is_refused_with_the_way_out():
    rows = [Row(job_id="a", submit_s=0, gpus=1, duration_s=10)]
    with pytest.raises(UsageError, match="policy equal counts whole nodes"):
        simulate(rows, "equal", Setting())
    with pytest.raises(UsageError, match="policy pollux hands out single GPUs"):
        simulate(rows, "pollux", Setting(whole_nodes=True))


def test_figures_of_two_jobs_that_can_be_reckoned_by_hand():
    """One node of four GPUs, first fit, no costs: the second waits 90 s for the first."""
    rows = [
        Row(job_id="first", submit_s=0, gpus=4, duration_s=100),
        Row(job_id="second", submit_s=10, gpus=4, duration_s=50),
    ]
    result = simulate(rows, "first-fit", Setting(nodes=1, by_clock=False))
    run = result.figures
    assert [job.completion_s for job in result.jobs] == [100, 140]
    assert [job.waiting_s for job in result.jobs] == [0, 90]
    assert (run.mean_s, run.median_s, run.makespan_s, run.waiting_s) == (120, 120, 150, 45)
    assert run.utilisation == pytest.approx(1.0)
    # each is worth (1/4)^-0.8 as long on one GPU
    assert run.goodput == pytest.approx(150 * 4**0.8 / (4 * 150))
    assert result.jobs[0].rho == pytest.approx(1.0)
    assert result.jobs[1].rho == pytest.approx(140 / 50)
