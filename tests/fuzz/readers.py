"""Every reader of outside text, with right inputs to start from, and the refusals with which it answers wrong ones."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from click.testing import CliRunner

from ones_slurm.cli.main import ones
from ones_slurm.elastic import checkpoint
from ones_slurm.elastic.runfolder import read_whole
from ones_slurm.engine.journal import Journal
from ones_slurm.model.errors import OnesError
from ones_slurm.model.plan import Outcome, Status
from ones_slurm.model.settings import load_site
from ones_slurm.model.wire import Order, Reply, Sync
from ones_slurm.model.wish import parse_wish
from ones_slurm.pipeline.files import read_placement, read_plan
from ones_slurm.report.dump import read_dump
from ones_slurm.sim.trace import read_trace
from ones_slurm.slurm import (
    accounting,
    accounting_json,
    config_text,
    counts,
    exits,
    hostlists,
    job_json,
    job_text,
    jobids,
    memory,
    node_text,
    partitions,
    probe,
    states,
    times,
    tres,
)
from ones_slurm.slurm.releases import Release

SITE_CONFIGS = Path(__file__).parents[2] / "site_configs"


class Reader(msgspec.Struct, frozen=True):
    """`read` gives an answer or raises one of `refusals`; anything else is a fault of ours."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (OnesError,)


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """For readers of str: bytes as Slurm's answers are decoded, whatever they hold."""
    return lambda data: read(data.decode("utf-8", "replace"))


def _in(folder: Path) -> Callable[[Callable[[Path], object], str], Callable[[bytes], object]]:
    """For readers of files: the file is written anew for each input."""

    def file(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
        def write_and_read(data: bytes) -> object:
            path = folder / name
            path.write_bytes(data)
            return read(path)

        return write_and_read

    return file


def _jobs(data: bytes) -> list[object]:
    return [job_json.read_job(raw) for raw in job_json.read_queue(data)]


def _squeue(said: str) -> list[object]:
    return [job_json.read_job(raw) for raw in job_text.read_squeue(said, "\x1f")]


def _sacct(said: str) -> list[object]:
    return [*accounting.read_rows(said, "\x1f", Release(22, 5))]


def _facts(said: str) -> object:
    return probe.site_facts(config_text.read_config(said), Release(22, 5), user="me", admin_level="None")


def _journal(path: Path) -> object:
    for left in path.parent.glob(f"{path.name}-*"):
        left.unlink()
    with Journal.read(path) as journal:
        return [*journal.story("7"), *journal.moves(), *journal.recorded_ticks()]


SQUEUE = "\x1f".join(
    [
        *(
            "12",
            "12",
            "N/A",
            "0",
            "user1",
            "RUNNING",
            "None",
            "physics",
            "gpu",
            "normal",
            "c[1-2]",
            "c1",
            "2",
            "8",
            "2",
        ),
        *("cpu=8,gres/gpu=4", "gres:gpu:2", "N/A", "1790000000", "1790000100", "1790003700", "1:00:00", "1", "1", "1"),
        *("4294901751", "train", "charge=x ones:nodes=1-4,batch=64-512", ""),
    ]
)
SACCT = "\x1f".join(
    [
        *("12", "user1", "physics", "gpu", "train", "CANCELLED by 61001", "2026-11-30T10:00:00", "2026-11-30T10:00:00"),
        *(
            "2026-11-30T10:00:05",
            "2026-11-30T10:20:00",
            "c[1-4]",
            "4",
            "16",
            "billing=16,cpu=16,gres/gpu=8,node=4",
            "0:15",
        ),
        *("1-00:00:00", "ones:nodes=1-4", "sbatch --comment=ones:nodes=1-4 run.sh", "12\n"),
    ]
)
NODE = (
    "NodeName=c1 Arch=x86_64 CoresPerSocket=4 CPUAlloc=4 CPUTot=8 Gres=gpu:v100:4(S:0-1) NodeAddr=10.0.0.1 "
    "State=MIXED+DRAIN+NOT_RESPONDING Partitions=gpu,other CfgTRES=cpu=8,mem=64000M,gres/gpu=4 Reason=bad [root@now]\n"
)
SYNC = (
    b'{"phase":"training","generation":3,"nodes":["c1","c2"],"ranks":8,"batch":512,"progress":{"epoch":2,"step":100,'
    b'"samples":51200,"total_samples":90000,"samples_per_s":812.5,"loss":0.4,"base_batch":64,"metrics":{"accuracy":0.9}},'
    b'"declined":{"generation":2,"reason":"disk full"},"live":true,"companions":[{"job_id":"13","nodes":["c3"]}]}'
)
JOBS = (
    b'{"jobs":[{"job_id":12,"array_job_id":{"set":true,"number":0},"user_name":"user1","job_state":["RUNNING"],'
    b'"state_reason":"None","nodes":"c[1-2]","batch_host":"c1","node_count":{"set":true,"infinite":false,"number":2},'
    b'"tres_per_node":"gres:gpu:2","submit_time":1790000000,"start_time":{"set":true,"number":1790000100},'
    b'"time_limit":{"set":true,"infinite":true,"number":0},"comment":"ones:nodes=1-4","priority":0}],"errors":[]}'
)
SACCT_JSON = (
    b'{"jobs":[{"job_id":12,"user":"user1","account":"physics","partition":"gpu","name":"train","nodes":"c[1-4]",'
    b'"state":{"current":["COMPLETED"],"reason":"None"},"time":{"submission":1790000000,"start":1790000100,'
    b'"end":1790000900,"limit":{"set":true,"number":60}},"tres":{"allocated":[{"type":"gres","name":"gpu","count":8}]},'
    b'"exit_code":{"return_code":0,"signal":{"signal_id":0}},"comment":{"job":"ones:nodes=1-4"}}]}'
)
PLACEMENT = (
    b'name = "two"\ndevices = 2\nmemory = [4, 4]\n[[blocks]]\nname = "f0"\ntime_us = 1.0\nmemory = 1\ndevices = [0]\n'
    b'[[blocks]]\nname = "b0"\ntime_us = 2.0\nmemory = -1\ndevices = [0]\nafter = ["f0"]\nkind = "backward"\n'
    b'of = "f0"\n'
)
DUMP = (
    b"JobID|User|Account|Partition|JobName|State|Submit|Start|End|NodeList|NNodes|NCPUS|AllocTRES|ExitCode|Timelimit\n"
    b"12|user1|physics|gpu|a|b|TIMEOUT|2026-11-30T10:00:00|2026-11-30T10:00:05|Unknown|c[1-4]|4|16|gres/gpu=8|0:0|1:00\n"
    b"12_[3-9%2]|user1|physics|gpu|t|PENDING|2026-11-30T10:00:00|Unknown|Unknown|None assigned|4|16||0:0|UNLIMITED\n"
)
CONF = b"SLURM_VERSION = 22.05.8\nSchedulerParameters = bf_interval=5\nAuthInfo = cred_expire=5\n"
PARTITION = b"PartitionName=gpu Nodes=c[1-4] MaxTime=UNLIMITED State=UP\n"
HOSTS = (b"c[1-4,7],d[01-03]x[2-3],login", b"None assigned", b"rack[1-2]n[1-8]")
REPLY = b'{"order":{"generation":4,"kind":"grow","go":true,"batch":512,"nodes":["c1"],"live":true}}'
LEFT = b'{"phase":"left","generation":1}'
ORDER = b'{"generation":4,"kind":"shrink","go":false,"batch":64}'
TRACE = b"time,name,application,num_replicas,batch_size\n0,cifar10-0,cifar10,4,256\n60.5,bert-1,bert,2,48\n"


def checkpoint_bytes() -> bytes:
    """A real checkpoint, small."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        state = {"model": {"w": torch.ones(3, 2)}, "steps": 7, "seed": [1, 2], "scheduler": None}
        return checkpoint.save(Path(folder), 7, state).read_bytes()


def plan_bytes() -> bytes:
    """A real plan, searched for two stages on two devices."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        asked = ["pipeline", "search", "V2", "-n", "2", "-o", str(path)]
        CliRunner().invoke(ones, asked, catch_exceptions=False)
        return path.read_bytes()


def journal_bytes() -> bytes:
    """A real journal without an entry."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        with Journal.open(path) as journal:
            journal.end(Outcome("7", 1, Status.DONE, "moved"), 100.0)
        return path.read_bytes()


def readers(folder: Path) -> list[Reader]:
    """All of them; those that read files find them in this folder, best one in memory."""
    file = _in(folder)
    sites = tuple(path.read_bytes() for path in sorted(SITE_CONFIGS.glob("*.toml")))
    messages = (OnesError, msgspec.DecodeError, msgspec.ValidationError)
    return [
        Reader("comment", text(parse_wish), (b"charge=x12 ones:nodes=1-4,batch=64-4096", b"ones:gpus=8;ones:", b"")),
        Reader("host list", text(hostlists.expand), HOSTS),
        Reader("job id", text(jobids.read_job_id), (b"12", b"12_3", b"12_[1-4,7%2]", b"12+1", b"12_[1-...]")),
        Reader("job tasks", text(jobids.read_tasks), (b"1-4,7,9-12:2%3", b"0-99999999")),
        Reader("time", text(times.time_limit_s), (b"1-02:03:04", b"60", b"5:00", b"UNLIMITED", b"Partition_Limit")),
        Reader("date", text(times.date_s), (b"2026-11-30T10:00:00", b"1790000000", b"Unknown", b"None")),
        Reader("memory", text(memory.read_memory), (b"4000M", b"16Gn", b"2Tc", b"1.5G", b"0")),
        Reader("tres", text(tres.read_tres), (b"cpu=8,mem=64000M,node=2,billing=8,gres/gpu:v100=4,gres/gpu=4",)),
        Reader("counts", text(counts.read_counts), (b"4(x2),3", b"16", b"4(x3)")),
        Reader("states", text(states.read_states), (b"CANCELLED by 61001", b"RUNNING,COMPLETING", b"NODE_FAIL")),
        Reader("exit code", text(exits.read_exit), (b"0:15", b"1:0", b"")),
        Reader("nodes", text(node_text.read_nodes), (NODE.encode(), NODE.encode() * 2)),
        Reader("partitions", text(partitions.read_partitions), (PARTITION,)),
        Reader("slurm.conf", text(_facts), (CONF,)),
        Reader("squeue", text(_squeue), (SQUEUE.encode(), SQUEUE.encode() * 2)),
        Reader("squeue json", _jobs, (JOBS,)),
        Reader(
            "sacct",
            text(lambda said: accounting.read_rows(said, "\x1f", Release(22, 5))),
            (SACCT.encode(), SACCT.encode() * 2),
        ),
        Reader("sacct json", accounting_json.read_rows_json, (SACCT_JSON,), messages),
        Reader("sacct dump", file(read_dump, "dump.txt"), (DUMP,)),
        Reader("site file", file(load_site, "ones.toml"), sites),
        Reader(
            "sync",
            lambda data: msgspec.json.decode(data, type=Sync),
            (SYNC, b'{"phase":"left","generation":1}'),
            messages,
        ),
        Reader("reply", lambda data: msgspec.json.decode(data, type=Reply), (REPLY,), messages),
        Reader("order file", file(lambda path: read_whole(path, Order), "order.json"), (ORDER,)),
        Reader("checkpoint", file(checkpoint.load, "step.ckpt"), (checkpoint_bytes(),), (OnesError, checkpoint.Broken)),
        Reader("journal", file(_journal, "journal.sqlite"), (journal_bytes(),)),
        Reader("placement", file(read_placement, "two.toml"), (PLACEMENT,)),
        Reader("pipeline plan", file(read_plan, "plan.json"), (plan_bytes(),)),
        Reader("trace", file(lambda path: [*read_trace(path)], "trace.csv"), (TRACE,)),
    ]
