"""The Lua that Slurm runs judges and writes a wish exactly as the package reads it."""

import string
from pathlib import Path
from typing import Any

import lupa.lua53
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ones_slurm.model.errors import UsageError
from ones_slurm.model.wish import parse_wish

FOLDER = Path(__file__).parents[2] / "site_configs" / "slurm"
SUCCESS, ERROR = 0, -1


class Script:
    """One of the scripts, with the little of Slurm that it uses."""

    def __init__(self, name: str, **env: str) -> None:
        self.lua = lupa.lua53.LuaRuntime()
        self.said: list[str] = []
        self.lua.globals().said = self.said.append
        self.lua.globals().os.getenv = env.get
        self.lua.execute(f"""
            local function say(...) said(string.format(...)) end
            slurm = {{ SUCCESS = {SUCCESS}, ERROR = {ERROR}, log_user = say, log_error = say, log_info = say }}
        """)
        self.lua.execute((FOLDER / name).read_text())

    def call(self, function: str, **options: Any) -> tuple[int, Any]:
        table = self.lua.table_from(options)
        return self.lua.globals()[function](table, None, None, 0), table


SUBMISSION = Script("ones_submit.lua")


def refused(comment: str) -> bool:
    answer, _ = SUBMISSION.call("ones_submit", comment=comment)
    return answer == ERROR


KEY = st.sampled_from(["nodes", "gpus", "batch", "pipeline", "devices", "replicas", "nods", "", "ones:nodes"])
NUMBER = st.one_of(st.integers(0, 20).map(str), st.sampled_from(["", "x", "-1", "1234567890", "007"]))
PART = st.one_of(
    st.builds("{}={}".format, KEY, NUMBER),
    st.builds("{}={}-{}".format, KEY, NUMBER, NUMBER),
    st.text(string.printable, max_size=8),
)
WORD = st.one_of(
    st.lists(PART, max_size=4).map(lambda parts: "ones:" + ",".join(parts)),
    st.sampled_from(["ones:companion-of=12", "ones:pipeline=plan.json,replicas=1-8,batch=64", "ones:companion-of=x"]),
)
COMMENT = st.lists(st.one_of(WORD, st.text(string.printable, max_size=10)), max_size=3)


@given(words=COMMENT, between=st.sampled_from([" ", ";", ",", "x"]))
@example(words=["ones:nodes=1-4,batch=64-4096"], between=" ")
@example(words=["ones:nodes=4-1"], between=" ")
@example(words=["ones:pipeline=runs/a=b.json,devices=4,replicas=1-8,batch=64-512"], between=" ")
@example(words=["ones:pipeline=p.json,devices=4-4,replicas=1-8"], between=" ")
@example(words=["ones:pipeline=p.json,devices=2-4,replicas=1-8"], between=" ")
@example(words=["ones:pipeline=,replicas=1-8"], between=" ")
@example(words=["ones:pipeline=p.json,replicas=1-8,nodes=2"], between=" ")
@example(words=["ones:replicas=1-8"], between=" ")
@example(words=["ones:pipeline=plan.json,replicas=1-8,devices=2-4"], between=" ")
@example(words=["ones:companion-of=12,ones:nodes=3"], between=" ")
@example(words=["bones:nodes=nonsense"], between=" ")
def test_slurm_refuses_exactly_the_comments_that_we_could_not_read(words: list[str], between: str) -> None:
    comment = between.join(words)
    try:
        parse_wish(comment)
        readable = True
    except UsageError:
        readable = False
    assert refused(comment) == (not readable)


def test_a_job_that_says_nothing_of_us_passes_untouched() -> None:
    for options in ({}, {"comment": "charge=x12"}, {"comment": ""}):
        answer, table = SUBMISSION.call("ones_submit", **options)
        assert (answer, dict(table)) == (SUCCESS, options)


def test_a_refusal_says_what_would_be_right() -> None:
    script = Script("ones_submit.lua")
    script.call("ones_submit", comment="ones:nods=1-4")
    assert script.said == [
        "ones: 'nods=1-4' is not known; the keys are nodes, gpus, pipeline, devices, replicas, batch "
        "(for example --comment=ones:nodes=1-4,batch=64-4096)"
    ]


def test_a_changed_comment_is_checked_as_well() -> None:
    assert SUBMISSION.call("ones_modify", comment="ones:nodes=0")[0] == ERROR
    assert SUBMISSION.call("ones_modify", comment=None, num_tasks=3)[0] == SUCCESS


def test_our_own_fault_lets_the_job_pass_and_is_logged() -> None:
    script = Script("ones_submit.lua")
    assert script.call("ones_submit", comment=12345.5, spank_job_env=7)[0] == SUCCESS
    assert "lets the job pass" in script.said[0]


@pytest.mark.parametrize(
    ("env", "comment", "written"),
    [
        ({"ONES_NODES": "1-4", "ONES_BATCH": "64-512"}, None, "ones:nodes=1-4,batch=64-512"),
        ({"ONES_GPUS": "8"}, "charge=x12", "charge=x12 ones:gpus=8"),
        ({"ONES_NODES": "1-4"}, "ones:nodes=2", "ones:nodes=2"),
        ({"ONES_NODES": ""}, None, None),
        ({"ONES_BATCH": "512", "ONES_RUN_DIR": "/home/me/ones-runs/7"}, None, None),
        ({}, None, None),
    ],
    ids=["written", "beside a charge code", "a wish wins", "empty", "inside a job of ours", "nothing set"],
)
def test_the_environment_gives_the_default_wish(env: dict[str, str], comment: str | None, written: str | None) -> None:
    options = {"type": "sbatch"} | ({"comment": comment} if comment else {})
    answer, table = Script("cli_filter.lua", **env).call("slurm_cli_pre_submit", **options)
    assert (answer, table["comment"]) == (SUCCESS, written)


def test_srun_and_salloc_are_left_alone() -> None:
    for kind in ("srun", "salloc"):
        _, table = Script("cli_filter.lua", ONES_NODES="1-4").call("slurm_cli_pre_submit", type=kind)
        assert table["comment"] is None
