"""What Slurm writes for people, read. Cases with a name were met by somebody: the name is the public issue."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.model.cluster import JobState
from ones_slurm.slurm import hostlists
from ones_slurm.slurm.config_text import read_config, read_options
from ones_slurm.slurm.counts import read_counts
from ones_slurm.slurm.exits import Exit, read_exit
from ones_slurm.slurm.jobids import read_job_id, read_tasks
from ones_slurm.slurm.memory import Memory, read_memory
from ones_slurm.slurm.node_text import read_node_states, read_nodes
from ones_slurm.slurm.numbers import Wrapped, number
from ones_slurm.slurm.states import cancelled_by, fold, is_final, read_states
from ones_slurm.slurm.times import date_s, duration_s, time_limit_minutes, time_limit_s
from ones_slurm.slurm.tres import count_gpus, gpu_type, read_tres


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("c[1-2]", ["c1", "c2"], id="pmodels/mpich#5653"),
        pytest.param("linux[1,2]", ["linux1", "linux2"], id="Lightning-AI/pytorch-lightning#14896"),
        pytest.param(
            "nodeA,nodeB[001,003],nodeC", ["nodeA", "nodeB001", "nodeB003", "nodeC"], id="Megatron-Bridge#3830"
        ),
        pytest.param("c438-[062,104]", ["c438-062", "c438-104"], id="OSC/ood_core#54"),
        pytest.param("c427-032,c429-002", ["c427-032", "c429-002"], id="OSC/ood_core#54, hosts"),
        pytest.param("r[1-2]n[08-10]", [f"r{r}n{n}" for r in (1, 2) for n in ("08", "09", "10")], id="two brackets"),
        pytest.param("gpu-1.site.example,n[1,3-4]", ["gpu-1.site.example", "n1", "n3", "n4"], id="dots"),
        pytest.param("z9,a1", ["z9", "a1"], id="order is kept"),
        pytest.param("None assigned", [], id="none assigned"),
        pytest.param("(null)", [], id="null"),
        pytest.param("", [], id="empty"),
        pytest.param(None, [], id="absent"),
        pytest.param("n[1-", ["n[1-"], id="a cut list loses nothing"),
        pytest.param("n[1-99999999999]", ["n[1-99999999999]"], id="no list of a hundred billion"),
    ],
)
def test_node_lists(text, names):
    assert list(hostlists.expand(text)) == names


@given(st.lists(st.from_regex(r"[a-z]{1,4}(-[a-z]{1,3})?[0-9]{1,4}", fullmatch=True), min_size=1, max_size=30))
def test_a_folded_node_list_holds_the_same_nodes(names):
    assert set(hostlists.expand(hostlists.fold(names))) == set(names)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        pytest.param("1(x2)", (1, 1), id="sehoffmann/dmlcloud#39"),
        ("72(x2),40", (72, 72, 40)),
        ("4", (4,)),
        ("4(x", None),
        ("", None),
        ("1(x999999999)", None),
    ],
)
def test_counts_per_node(text, counts):
    assert read_counts(text) == counts


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("4:00", 240, id="ROCm/spur#804"),
        pytest.param("35:45.828", 2145.828, id="troycomi/reportseff#25"),
        ("90", 90 * 60),
        ("01:02:03", 3723),
        ("2-00:00:00", 2 * 86400),
        ("1-12", 36 * 3600),
        ("1-12:30", 36 * 3600 + 1800),
        ("00:00:00", 0),
        pytest.param("Partition_Limit", None, id="troycomi/reportseff#11"),
        *((word, None) for word in ("UNLIMITED", "INVALID", "N/A", "None", "Unknown", "", "1:2:3:4", "-5", "12:")),
    ],
)
def test_durations(text, seconds):
    assert duration_s(text) == (None if seconds is None else pytest.approx(seconds))


@given(st.integers(0, 10_000 * 86400))
def test_a_duration_in_full_reads_as_itself(seconds):
    days, rest = divmod(seconds, 86400)
    assert duration_s(f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}") == seconds


@pytest.mark.parametrize(("text", "seconds"), [("0", None), ("00:00:00", None), ("UNLIMITED", None), ("10:00", 600)])
def test_a_time_limit_of_zero_is_none(text, seconds):
    assert time_limit_s(text) == seconds


@pytest.mark.parametrize(("remaining_s", "minutes"), [(59, 1), (0, 1), (-5, 1), (119, 1), (120, 2), (3600, 60)])
def test_a_time_limit_is_never_written_as_zero(remaining_s, minutes):  # openpmix/prrte#2710
    assert time_limit_minutes(remaining_s) == minutes


def test_dates():
    assert date_s("1796049159") == 1796049159
    assert date_s("2026-11-30T14:32:44") - date_s("2026-11-30T14:32:39") == 5
    assert [date_s(word) for word in ("None", "Unknown", "N/A", "", "0", None)] == [
        None
    ] * 6  # neilmunday/slurm-mail#58


@pytest.mark.parametrize(
    ("value", "words", "state"),
    [
        pytest.param("CANCELLED by 100234", ("CANCELLED",), JobState.FAILED, id="Snakemake-Profiles/slurm#22"),
        ("CANCELLED+", ("CANCELLED",), JobState.FAILED),
        ("OUT_OF_ME+", ("OUT_OF_MEMORY",), JobState.FAILED),
        ("COMPLETED", ("COMPLETED",), JobState.DONE),
        ("CD", ("COMPLETED",), JobState.DONE),
        ("PD", ("PENDING",), JobState.PENDING),
        ("COMPLETING", ("COMPLETING",), JobState.ENDING),
        (["PENDING", "COMPLETING"], ("PENDING", "COMPLETING"), JobState.ENDING),
        (["RUNNING", "CONFIGURING"], ("RUNNING", "CONFIGURING"), JobState.RUNNING),
        (["PENDING", "REQUEUED"], ("PENDING", "REQUEUED"), JobState.PENDING),
        (["RUNNING", "STOPPED"], ("RUNNING", "STOPPED"), JobState.SUSPENDED),
        ({"current": "RESIZING"}, ("RESIZING",), JobState.RUNNING),
        ("DREAMING", ("UNKNOWN",), JobState.UNKNOWN),
        (None, ("UNKNOWN",), JobState.UNKNOWN),
    ],
)
def test_states(value, words, state):
    assert read_states(value) == words
    assert fold(words) == state


def test_who_cancelled_a_job():
    assert (cancelled_by("CANCELLED by 100234"), cancelled_by("CANCELLED")) == ("100234", None)


@pytest.mark.parametrize(
    ("word", "requeues", "final"),
    [
        pytest.param("PREEMPTED", True, False, id="reframe-hpc/reframe#3608"),
        pytest.param("NODE_FAIL", True, False, id="snakemake-executor-plugin-slurm#109"),
        ("PREEMPTED", False, True),
        ("NODE_FAIL", False, True),
        ("COMPLETED", True, True),
        ("RUNNING", False, False),
        ("RESIZING", True, False),
        ("REQUEUED", True, False),
        ("UNKNOWN", True, False),
    ],
)
def test_what_is_final(word, requeues, final):
    assert is_final((word,), requeues=requeues) is final


@pytest.mark.parametrize(
    ("value", "status", "signal"),
    [
        pytest.param("0:9", 0, 9, id="DataBiosphere/toil#2646"),
        pytest.param("0:10", 0, 10, id="martius-lab/cluster_utils#87, the step"),
        ("0:0", 0, 0),
        ("7:0", 7, 0),
        (1792, 7, 0),
        (9, 0, 9),
        (0x8B, 0, 11),
        (None, 0, 0),
        ({"status": "ERROR", "return_code": 7}, 7, 0),
        ({"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 15, "name": "TERM"}}, 0, 15),
        (
            {"return_code": {"set": False, "number": 0}, "signal": {"id": {"set": True, "number": 9}, "name": "KILL"}},
            0,
            9,
        ),
    ],
)
def test_exits(value, status, signal):
    assert read_exit(value) == Exit(status, signal)
    assert read_exit(value).ok is (status == signal == 0)


def test_job_ids():
    waiting = read_job_id("123456_[9201-10000%500]")  # ycrc/seff-array#15
    assert (waiting.job, waiting.task_count, waiting.throttle, waiting.scontrol) == (123456, 800, 500, "123456_9201")
    part = read_job_id("93+1")  # ALU-Schumacher/AUDITOR#1966
    assert (part.job, part.het_offset, part.scontrol) == (93, 1, "93")
    assert [read_job_id(text).step for text in ("12.batch", "12_3.extern", "12.0", "12")] == [
        "batch",
        "extern",
        "0",
        None,
    ]
    assert read_job_id("1234_2").scontrol == "1234_2"
    assert read_job_id("9_[1,4-9,20-40:5]").task_count == 1 + 6 + 5
    assert [read_job_id(text) for text in ("", "abc", "12_", "12_[]", "12_[5-1]", None)] == [None] * 6


def test_a_cut_list_of_array_tasks_keeps_its_beginning():
    assert read_tasks("2-3,7,...%2") == (range(2, 4), range(7, 8))


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        pytest.param("5000Mc", Memory(5000, "cpu"), id="troycomi/reportseff#25"),
        pytest.param("0n", Memory(0, "node"), id="aws-samples/hpc-cost-simulator#20"),
        ("4G", Memory(4096)),
        ("62.50G", Memory(64000)),
        ("1.5T", Memory(1.5 * 1024 * 1024)),
        ("512K", Memory(0.5)),
        ("2000", Memory(2000)),
        ("16Gn", Memory(16384, "node")),
        ("lots", None),
        ("", None),
    ],
)
def test_memory(text, memory):
    assert read_memory(text) == memory


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        pytest.param("cpu=64,mem=257728M,node=2,billing=64,gres/gpu=4,gres/gpu:a100=4", 4, id="OSC/ood_core#957"),
        pytest.param("cpu=192,mem=400G,billing=192", None, id="skypilot-org/skypilot#10319"),
        ("cpu=8,gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("gres:gpu:v100:2(S:0-1)", 2),
        ("gpu:v100:4", 4),
        ("gpu:v100:2(S:0),gpu:a100:2(S:1)", 4),
        ("gres/gpu:v100:2", 2),
        ("gres:gpu:2", 2),
        ("gres:gpu", 1),
        ("gpu:v100", 1),
        ("gpu:v100:2(IDX:0,3)", 2),
        ("gres/gpu=0", 0),
        ("gres/gpumem=4G,gres/gpuutil=3", None),
        ("gres/nvme=1", None),
        ("N/A", None),
        ("", None),
        (None, None),
    ],
)
def test_gpus(text, gpus):
    assert count_gpus(text) == gpus


def test_gpu_types_and_other_resources():
    assert [gpu_type(text) for text in ("gpu:v100:4(S:0-1)", "gres/gpu:a100=4", "gpu:4", None)] == [
        "v100",
        "a100",
        "",
        "",
    ]
    assert read_tres("cpu=4,mem=8000M,node=2,gres/gpu=8") == {"cpu": 4, "mem": 8000, "node": 2, "gres/gpu": 8}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, None),
        (10, 10),
        (Wrapped(set=True, number=10), 10),
        (Wrapped(set=False, infinite=True), None),
        (Wrapped(set=False), None),
    ],
)
def test_numbers_in_either_shape(value, read):
    assert number(value) == read


def test_node_states():
    assert read_node_states("MIXED+PLANNED") == ("MIXED", "PLANNED")
    assert read_node_states("DOWN*+DRAIN") == ("DOWN", "NOT_RESPONDING", "DRAIN")
    assert read_node_states("idle~".upper()) == ("IDLE", "POWERED_DOWN")


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        *((state, True) for state in ("IDLE", "MIXED", "ALLOCATED", "IDLE+PLANNED", "ALLOCATED+COMPLETING", "IDLE~")),
        *(
            (state, False)
            for state in ("DOWN", "IDLE*", "IDLE+DRAIN", "MIXED+DRAIN", "IDLE+RESERVED", "IDLE+MAINT", "WAT")
        ),
    ],
)
def test_which_nodes_a_job_can_start_on(state, usable):
    assert (
        read_nodes(f"NodeName=n1 CPUTot=4 Gres=gpu:2 State={state} Partitions=a,b Reason=broken State=IDLE")[0].usable
        is usable
    )


def test_configuration():
    config = read_config(
        "Configuration data as of today\nKillWait                = 30 sec\nEpilog                  = (null)\n"
    )
    assert config == {"KillWait": "30 sec"}
    assert read_options("bf_interval=5,Enable_user_top") == {"bf_interval": "5", "enable_user_top": ""}


@given(st.one_of(st.none(), st.text(), st.from_regex(r"[0-9cnGMK:\-_\[\],.+()x%= gpures/]*", fullmatch=True)))
def test_no_text_makes_a_reader_fall_over(text):
    for read in (hostlists.expand, read_counts, duration_s, time_limit_s, date_s, read_states, read_exit, read_job_id):
        read(text)
    for read in (read_tasks, read_memory, read_tres, count_gpus, gpu_type):
        read(text)
    if text is not None:
        for read in (cancelled_by, read_node_states, read_nodes, read_config, read_options):
            read(text)
    limit_s = time_limit_s(text)
    assert limit_s is None or (limit_s > 0 and math.isfinite(limit_s))
