"""Jobs as pyslurm 22.5 gives them (recorded), read like those of the commands; the contract tries the whole client."""

import subprocess
import sys

from ones_slurm.model.cluster import JobState
from ones_slurm.slurm.job_json import read_job
from ones_slurm.slurm.pyslurm_client import raw_job

RUNNING = {
    "account": "physics",
    "array_job_id": None,
    "array_task_id": None,
    "array_task_str": None,
    "batch_flag": 1,
    "batch_host": "c1",
    "comment": "ones:nodes=1-3",
    "end_time": 1796063834,
    "het_job_id": None,
    "job_id": 23,
    "job_state": "RUNNING",
    "name": "wrap",
    "nodes": "c[1-2]",
    "num_cpus": 2,
    "num_nodes": 2,
    "num_tasks": 2,
    "partition": "gpu",
    "priority": 1,
    "qos": "normal",
    "requeue": True,
    "restart_cnt": 0,
    "start_time": 1796060234,
    "state_reason": "None",
    "submit_time": 1796060234,
    "time_limit": 60,
    "tres_alloc_str": "cpu=2,node=2,billing=2,gres/gpu=4",
    "tres_per_job": None,
    "tres_per_node": "gres:gpu:2",
    "tres_req_str": "cpu=2,mem=125G,node=2,billing=2,gres/gpu=4",
    "user_id": 0,
}


def test_a_running_job():
    job = read_job(raw_job(RUNNING))
    assert (job.job_id, job.user, job.state, job.comment) == ("23", "root", JobState.RUNNING, "ones:nodes=1-3")
    assert (job.nodes, job.batch_host, job.asked_nodes, job.gpus_per_node) == (("c1", "c2"), "c1", 2, 2)
    assert (job.tasks, job.cpus, job.time_limit_s, job.end_s) == (2, 2, 3600, 1796063834)


def test_words_and_marks_for_no_value():
    waiting = {"job_state": "PENDING", "nodes": None, "tres_alloc_str": None, "time_limit": "Partition_Limit"}
    array = {"array_job_id": 21, "array_task_id": 4294967294, "array_task_str": "2-3%1", "user_id": 4294967000}
    job = read_job(raw_job(RUNNING | waiting | array))
    assert (job.job_id, job.time_limit_s, job.nodes, job.user) == ("21_2", None, (), "4294967000")


def test_the_room_works_on_a_machine_without_pyslurm():
    hidden = "import sys; sys.modules['pyslurm'] = None; from ones_slurm.slurm.pyslurm_client import pyslurm_version"
    subprocess.run([sys.executable, "-c", f"{hidden}; sys.exit(pyslurm_version() is not None)"], check=True)
