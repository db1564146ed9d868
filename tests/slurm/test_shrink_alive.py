"""Nodes are taken away in place under a running step, and the processes on the kept nodes do not notice.

It holds with the two options of srun that every step of ours has; the batch host is never given back.
"""

import pytest
from places import LabPlace, command_client

from ones_slurm.elastic.launch import Generation, srun_line
from ones_slurm.model.cluster import JobState
from ones_slurm.model.settings import Launcher
from ones_slurm.slurm.client import Refused

pytestmark = pytest.mark.slurm

# Each task writes its pid and a count that goes up for as long as it lives.
LIVES = 'n=0; while sleep 0.1; do n=$((n+1)); echo "$$ $n" > {folder}/$SLURMD_NODENAME; done'


class Beating:
    """A job on three nodes with one step over all of them."""

    def __init__(self, lab):
        self.lab, self.place = lab, LabPlace(lab, command_client)
        self.slurm = self.place.client("user1")
        self.folder = "/home/user1/beats"
        script = "/home/user1/lives.sh"
        lab.run(["rm", "-rf", self.folder])
        lab.run(["mkdir", self.folder])
        lab.run(["bash", "-c", f"cat > {script}"], input="#!/bin/bash\n" + LIVES.format(folder=self.folder))
        # The step as ones-run starts it; the shell stands where the rank starter would.
        line = srun_line(
            Generation(number=1, nodes=("HERE",), ranks_per_node=1, batch=0), Launcher(mpi="none"), "", ["bash", script]
        )
        options = [word for word in line[1:-4] if not word.startswith(("--nodes=", "--ntasks=", "--nodelist="))]
        step = " ".join(["srun", "--nodes=3", "--ntasks=3", *options, "bash", script])
        self.job_id = lab.run(
            ["sbatch", "--parsable", "--nodes=3", "--gpus-per-node=2", "--output=/dev/null", f"--wrap={step}"]
        ).stdout.strip()
        self.place.wait(lambda: len(self.beats()) == 3)

    def beats(self):
        """(pid, count) by node."""
        told = self.lab.run(["bash", "-c", f"cd {self.folder}; grep -H . * 2>/dev/null || true"]).stdout
        words = (line.partition(":") for line in told.splitlines())
        return {node: tuple(map(int, text.split())) for node, _, text in words if len(text.split()) == 2}

    def still_beat(self, nodes):
        """Waits until the tasks on these nodes have gone on; returns their pids."""
        before = self.beats()
        self.place.wait(lambda: all(self.beats().get(node, (0, 0))[1] > before[node][1] + 5 for node in nodes))
        after = self.beats()
        return {node: after[node][0] for node in nodes}


def test_survivors_of_a_shrink_in_place_live_on(slurm_lab):
    job = Beating(slurm_lab)
    try:
        record = job.slurm.job(job.job_id)
        pids = {node: pid for node, (pid, _) in job.beats().items()}
        host, released, kept = record.batch_host, *sorted(set(record.nodes) - {record.batch_host})

        with pytest.raises(Refused):
            job.slurm.shrink(job.job_id, [released, kept])
        assert job.still_beat(record.nodes) == pids, "a refused shrink kills nobody"

        job.slurm.shrink(job.job_id, [host, kept])
        assert job.still_beat([host, kept]) == {host: pids[host], kept: pids[kept]}
        count = job.beats()[released]
        job.still_beat([host])
        assert job.beats()[released] == count, "the task on the released node is gone"

        job.slurm.shrink(job.job_id, [host])
        assert job.still_beat([host]) == {host: pids[host]}
        after = job.slurm.job(job.job_id)
        assert (after.state, after.nodes, after.restarts) == (JobState.RUNNING, (host,), 0)
        other = job.place.submit(nodes=3)
        job.place.wait(lambda: job.slurm.job(other).state is JobState.RUNNING)
        assert job.still_beat([host]) == {host: pids[host]}
    finally:
        job.place.clear()
