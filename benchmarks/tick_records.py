"""A large cluster as Slurm's commands print it, made of one real job and one real node of a release.

Every job carries all the fields that the release prints, for skipping them is a good part of the work.
"""

import copy
import json
from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).resolve().parent / "templates"
RELEASES = ("22.05.8", "26.05.5")
NOW_S = 1_796_050_000
NODES_PER_JOB = 2
# Four of five nodes are taken, the others are free, so that a policy has something to give (ours).
TAKEN = 0.8


def write_recorded_format(folder: Path, jobs: int, nodes: int, release: str) -> None:
    """Writes `squeue.json` (`squeue --all --json`), `nodes.txt` (`scontrol -o show node`), `version.txt`
    (`scontrol --version`) and `config.txt` (the lines of `scontrol show config` that matter here).

    `jobs` wait in the queue; beside them jobs of two nodes run on four fifths of the `nodes`. All have a wish.
    """
    template = json.loads((TEMPLATES / f"{release}.json").read_text(encoding="utf-8"))
    running = int(nodes * TAKEN) // NODES_PER_JOB
    records = [_running(template["running"], number) for number in range(running)]
    records += [_pending(template["pending"], running + number) for number in range(jobs)]
    text = json.dumps(template["envelope"] | {"jobs": records}, indent=2)
    (folder / "squeue.json").write_text(text.replace("/", "\\/"), encoding="utf-8")
    lines = [_node(template["node"], number, number < running * NODES_PER_JOB) for number in range(nodes)]
    (folder / "nodes.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = {"ClusterName": "bench", "GresTypes": "gpu", "SLURM_VERSION": release, "SelectType": "select/cons_tres"}
    text = "".join(f"{key:<24}= {value}\n" for key, value in config.items())
    (folder / "config.txt").write_text(f"Configuration data as of 2026-11-30T14:00:00\n{text}", encoding="utf-8")
    (folder / "version.txt").write_text(f"slurm-wlm {release}\n", encoding="utf-8")


def node_name(number: int) -> str:
    """Names with leading zeros, as large machines have them."""
    return f"gpu{number + 1:04}"


def job_id(number: int) -> int:
    """The id of the job with that number; running ones come first."""
    return 100_000 + number


def _running(template: dict[str, Any], number: int) -> dict[str, Any]:
    job = _job(template, number)
    names = [node_name(number * NODES_PER_JOB + offset) for offset in range(NODES_PER_JOB)]
    folded = f"gpu[{names[0].removeprefix('gpu')}-{names[-1].removeprefix('gpu')}]"
    job["nodes"], job["batch_host"] = folded, names[0]
    resources = job["job_resources"]
    if isinstance(resources["nodes"], dict):
        one = resources["nodes"]["allocation"][0]
        resources["nodes"]["allocation"] = [one | {"name": name} for name in names]
        resources["nodes"] |= {"list": folded, "count": NODES_PER_JOB}
    else:
        one = resources["allocated_nodes"][0]
        resources["allocated_nodes"] = [one | {"nodename": name} for name in names]
        resources |= {"nodes": folded, "allocated_hosts": NODES_PER_JOB}
    job["tres_alloc_str"] = f"cpu=8,mem=64000M,node={NODES_PER_JOB},billing=8,gres/gpu={4 * NODES_PER_JOB}"
    _set(job, start_time=NOW_S - 600 - number)
    return job


def _pending(template: dict[str, Any], number: int) -> dict[str, Any]:
    job = _job(template, number)
    job["state_reason"] = "Resources" if number % 10 == 0 else "Priority"
    return job


def _job(template: dict[str, Any], number: int) -> dict[str, Any]:
    job = copy.deepcopy(template)
    job["job_id"] = job_id(number)
    job["name"] = f"train-{number}"
    job["user_name"] = f"user{number % 50}"
    job["comment"] = f"project-{number % 7} ones:nodes=1-{2 + number % 7},batch={64 * (1 + number % 4)}-4096"
    job["array_task_string"] = ""
    job["tres_per_node"] = "gres:gpu:v100:4" if isinstance(template["node_count"], int) else "gres/gpu:v100:4"
    job["tres_req_str"] = f"cpu=8,mem=64000M,node={NODES_PER_JOB},billing=8,gres/gpu={4 * NODES_PER_JOB}"
    _set(job, node_count=NODES_PER_JOB, tasks=NODES_PER_JOB, cpus=8, priority=4_000_000 - number)
    _set(job, submit_time=NOW_S - 7200 + number % 3600, eligible_time=NOW_S - 7200 + number % 3600)
    for key in ("array_job_id", "array_task_id"):
        is_wrapped = isinstance(job[key], dict)
        job[key] = {"set": False, "infinite": False, "number": 0} if is_wrapped else None
    return job


def _set(job: dict[str, Any], **numbers: int) -> None:
    """Numbers in the shape that the release gives them."""
    for key, number in numbers.items():
        is_wrapped = isinstance(job[key], dict)
        job[key] = {"set": True, "infinite": False, "number": number} if is_wrapped else number


def _node(template: str, number: int, taken: bool) -> str:
    name = node_name(number)
    pairs = []
    for pair in template.split(" "):
        key, sign, _ = pair.partition("=")
        value = {"NodeName": name, "NodeAddr": name, "NodeHostName": name, "State": "ALLOCATED" if taken else "IDLE"}
        pairs.append(f"{key}={value[key]}" if sign and key in value else pair)
    return " ".join(pairs)
