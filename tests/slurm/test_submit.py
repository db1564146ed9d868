"""Submitting exactly once."""

import pytest
from scripted import Says, Scripted

from ones_slurm.model.errors import Failed, NotAllowed, Unreachable
from ones_slurm.slurm.client import Refused
from ones_slurm.slurm.submit import submit

TIMED_OUT = Says("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")


def sent(slurm: Scripted) -> int:
    return sum(command.startswith("sbatch") for command in slurm.asked)


@pytest.mark.parametrize("printed", ["4711\n", "4711;cluster\n", "sbatch: a word from the site\n4711\n"])
def test_the_job_id_is_returned(printed):
    slurm = Scripted({"sbatch": printed})
    assert submit(["-N2", "job.sh"], comment="ones:nodes=1-4", runner=slurm) == "4711"
    assert slurm.asked[0].startswith("sbatch --parsable --comment=ones:nodes=1-4 ones-submit:")
    assert slurm.asked[0].endswith(" -N2 job.sh")


def test_after_a_lost_answer_the_job_is_found_and_not_sent_again():  # facebookincubator/submitit#1659
    slurm = Scripted({"sbatch": TIMED_OUT})
    slurm.answers["squeue"] = lambda _: f"11 other\n12 ones:nodes=1-4 {slurm.asked[0].split()[3]}\n"
    naps: list[float] = []
    assert submit(["job.sh"], comment="ones:nodes=1-4", runner=slurm, sleep=naps.append) == "12"
    assert sent(slurm) == 1
    assert len(naps) == 1


def test_a_job_that_did_not_arrive_is_sent_again():
    slurm = Scripted({"sbatch": [TIMED_OUT, "13\n"], "squeue": "11 other\n"})
    assert submit(["job.sh"], runner=slurm, sleep=lambda _: None) == "13"
    assert sent(slurm) == 2


def test_when_the_queue_cannot_be_read_either_nothing_is_sent_again():
    slurm = Scripted({"sbatch": TIMED_OUT, "squeue": Says("Unable to contact slurm controller")})
    with pytest.raises(Unreachable, match="unknown whether") as caught:
        submit(["job.sh"], runner=slurm, sleep=lambda _: None)
    assert "ones-submit:" in caught.value.hint
    assert sent(slurm) == 1


def test_trying_ends():
    slurm = Scripted({"sbatch": TIMED_OUT, "squeue": ""})
    with pytest.raises(Unreachable):
        submit(["job.sh"], runner=slurm, sleep=lambda _: None)
    assert sent(slurm) == 3


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", Refused),
        ("sbatch: error: this host is no submit host", Refused),
        ("sbatch: error: Batch job submission failed: Access/permission denied", NotAllowed),
    ],
)
def test_a_refusal_is_told_and_not_tried_again(words, kind):
    slurm = Scripted({"sbatch": Says(words)})
    with pytest.raises(kind, match=words.rpartition(": ")[2]):
        submit(["job.sh"], runner=slurm)
    assert sent(slurm) == 1


def test_an_answer_without_an_id_is_an_error():
    with pytest.raises(Failed, match="no job id"):
        submit(["job.sh"], runner=Scripted({"sbatch": "hello\n"}))
