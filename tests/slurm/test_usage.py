"""What steps used, as sacct tells it: rows of real clusters, shortened."""

import pytest

from ones_slurm.slurm.usage import read_lines, read_used, saved_used

# JobID|State|Start|NNodes|NCPUS|NTasks|ReqMem|TotalCPU|MaxRSS|TRESUsageInTot, of 22.05.8: a job on two nodes of 600M
# each that gave one back while its first step ran.
RESIZED = """1|RESIZING|100|2|2||1200M|00:00:00||
1.batch|RESIZING|100|1|1|1||00:00:00||
1.0|RESIZING|100|2|2|2||00:00:00||
1|COMPLETED|104|1|1||1200M|00:00.002||
1.1|COMPLETED|112|1|1|1||00:00.002|1644K|cpu=00:00:00,energy=0,fs/disk=6977,mem=1644K,pages=0,vmem=2920K
"""


def test_of_a_step_during_a_resize_nothing_is_told():
    used = read_used(read_lines(RESIZED))
    assert [(step.step, step.cpu_s) for step in used.steps] == [("batch", None), ("0", None), ("1", 0.002)]
    assert used.steps[2].memory_mib == 1644 / 1024


def test_after_a_resize_the_request_of_each_node_is_what_it_was():
    (request,) = read_used(read_lines(RESIZED)).requests
    assert request.node_memory_mib == 600


@pytest.mark.parametrize(
    ("asked", "node_memory_mib"),
    [
        ("1200M", 600),  # of the whole job, since 21.08
        ("5000Mc", 10000),  # of each CPU, before
        ("4Gn", 4096),  # of each node, before
        ("0n", None),  # all that the node has
        ("", None),
    ],
)
def test_memory_asked_for_on_a_node(asked, node_memory_mib):
    (request,) = read_used(read_lines(f"1|COMPLETED|100|2|4||{asked}|01:00||")).requests
    assert request.node_memory_mib == node_memory_mib


@pytest.mark.parametrize(
    ("fields", "memory_mib"),
    [
        ("2|512M|cpu=00:00:01,mem=1000M", 1000),  # the sum of its tasks' peaks
        ("2|512M|", 1024),  # as many times the highest peak
        ("|512M|", None),
        ("2||", None),
        ("2|0|energy=0", None),  # nothing was sampled
    ],
)
def test_memory_of_a_step(fields, memory_mib):
    tasks, rest = fields.split("|", 1)
    (step,) = read_used(read_lines(f"1.0|COMPLETED|100|2|4|{tasks}||35:45.828|{rest}")).steps
    assert step.memory_mib == memory_mib
    assert step.cpu_s == 2145.828


def test_a_step_that_runs_has_not_told_yet():
    (step,) = read_used(read_lines("1.0|RUNNING|100|2|4|2||00:00:00||")).steps
    assert step.cpu_s is None


def test_a_saved_file_has_its_own_columns(tmp_path):
    saved = tmp_path / "sacct.txt"
    saved.write_text("TotalCPU|JobName|JobID|State\n00:10|a|1|COMPLETED\n00:10|x|y|1.0|COMPLETED\n00:20||1.1|FAILED\n")
    used = saved_used(saved)
    assert used is not None
    assert [(step.step, step.cpu_s) for step in used.steps] == [("1", 20)], "a line that cannot be read is left out"
    saved.write_text("JobID|State\n1|COMPLETED\n")
    assert saved_used(saved) is None
