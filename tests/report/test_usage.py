"""CPU and memory of a job: shares of what it held and asked for, what is not known is said, and advice."""

import pytest
from accounting_rows import row

from ones_slurm.report.segments import histories
from ones_slurm.report.usage import show_memory, told, usage, usage_advice
from ones_slurm.slurm.usage import Request, StepUsage, Used


def job(*steps, asked_mib=4096.0, nodes=("c1", "c2"), end=200):
    """A job of 100 s on two nodes with 4 cores in all."""
    rows = [row("1", state="COMPLETED", submit=90, start=100, end=end, nodes=nodes, cpus=4)]
    (its,) = histories(rows, now_s=300)
    requests = (Request(job_id="1", start_s=100.0, node_memory_mib=asked_mib),)
    others = StepUsage(job_id="2", step="0", start_s=100.0, nnodes=1, cpu_s=1e6, memory_mib=1e6)
    return usage(its, rows, Used((*steps, others), requests))


def step(name="0", *, cpu_s=100.0, memory_mib=None, nnodes=2):
    return StepUsage(job_id="1", step=name, start_s=100.0, nnodes=nnodes, cpu_s=cpu_s, memory_mib=memory_mib)


def page(use, *, measured=True):
    return "\n".join(f"{name} {value}" for name, value in told(use, measured=measured))


def test_cpu_efficiency_is_cpu_time_over_core_time():
    use = job(step("batch", cpu_s=10.0, nnodes=1), step("0", cpu_s=190.0))
    assert (use.cpu_s, use.core_s, use.cpu_efficiency) == (200.0, 400, 0.5)
    assert "CPU 00:03:20, 50.0% of 00:06:40 of core time" in page(use)


def test_memory_is_the_fullest_step_of_what_was_asked_for_on_its_nodes():
    use = job(step("0", memory_mib=2048.0), step("1", memory_mib=1024.0, nnodes=1))
    assert (use.step, use.memory_mib, use.asked_mib, use.memory_efficiency) == ("0", 2048.0, 8192.0, 0.25)
    assert "memory at most 2.0 GiB in step 0, 25.0% of the 8.0 GiB asked for" in page(use)


def test_all_memory_of_the_nodes_has_no_share():
    use = job(step(memory_mib=2048.0), asked_mib=None)
    assert use.memory_efficiency is None
    assert "asked for all that its nodes have" in page(use)


def test_what_is_not_told_makes_it_a_lower_bound_and_is_said():
    use = job(step("0", cpu_s=None), step("1", cpu_s=200.0))
    assert not use.complete
    assert "CPU at least 00:03:20, 50.0%" in page(use)
    assert "Slurm tells nothing of them" in page(use)
    assert list(usage_advice(use)) == [], "half a truth is no ground for advice"


@pytest.mark.parametrize(
    ("use", "measured", "said"),
    [
        (job(step(cpu_s=0.0)), False, "JobAcctGatherType is none"),
        (job(step(cpu_s=0.0)), True, "no step ran for long enough"),
        (job(step(cpu_s=None)), True, "unless its job changed size meanwhile"),
    ],
)
def test_nothing_measured_is_said_and_is_no_zero(use, measured, said):
    assert use.cpu_s is None
    assert page(use, measured=measured).count(said) == 2
    assert "0.0%" not in page(use, measured=measured)


def test_advice_on_memory_and_cores():
    assert "ask for more (`--mem`)" in "".join(usage_advice(job(step(cpu_s=380.0, memory_mib=8000.0))))
    assert "with less (`--mem`)" in "".join(usage_advice(job(step(cpu_s=380.0, memory_mib=500.0))))
    assert "0.2 of 4.0 cores busy" in "".join(usage_advice(job(step(cpu_s=20.0))))
    assert list(usage_advice(job(step(cpu_s=380.0, memory_mib=4096.0)))) == []


@pytest.mark.parametrize(("mib", "text"), [(0.5, "0.5 MiB"), (1024, "1.0 GiB"), (1024**2 * 3, "3.0 TiB")])
def test_memory_has_its_unit(mib, text):
    assert show_memory(mib) == text
