"""Whose word is it: ours, sbatch's, or the script's."""

from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.cli.sbatch_words import divide, gpus_per_node, request, script_of, without

MINE, FLAGS = ("--nodes", "--gpus", "--batch"), ("--dry-run",)


def test_our_options_may_stand_anywhere_before_the_script_and_nowhere_after_it():
    words = "-p gpu --nodes 1-4 -N2 --hold --batch=64-128 --dry-run train.sh --batch 32 --nodes 9"
    ours, theirs = divide(words.split(), MINE, FLAGS)
    assert ours == ["--nodes", "1-4", "--batch=64-128", "--dry-run"]
    assert theirs == ["-p", "gpu", "-N2", "--hold", "train.sh", "--batch", "32", "--nodes", "9"]


def test_flags_of_sbatch_do_not_swallow_the_script():
    for flag in ("-H", "-Hv", "--exclusive", "--requeue", "--nice", "--wait"):
        assert script_of([flag, "train.sh", "x"]) == "train.sh"
    for option in (["-p", "gpu"], ["-pgpu"], ["--time", "10"], ["--time=10"], ["-t10"]):
        assert script_of([*option, "train.sh"]) == "train.sh"
    assert script_of(["--wrap", "hostname"]) is None
    assert script_of(["--", "-odd.sh"]) == "-odd.sh"


def test_the_comment_goes_another_way():
    assert without(["--comment", "charge:7", "-p", "gpu", "x.sh", "--comment=a"], "--comment") == [
        "-p", "gpu", "x.sh", "--comment=a",
    ]  # fmt: skip


def test_command_line_beats_environment_beats_directives():
    script = "#!/bin/bash\n#SBATCH -p slow --comment='a b' # why\n#SBATCH -N 3\n\necho\n#SBATCH -p late\n"
    environment = {"SBATCH_PARTITION": "env"}
    assert request([], script, {})["--partition"] == "slow"
    assert request([], script, environment)["--partition"] == "env"
    assert request(["-p", "cli", "x.sh"], script, environment)["--partition"] == "cli"
    assert request([], script, {})["--comment"] == "a b"
    assert request([], script, {})["--nodes"] == "3"


def test_gpus_of_a_node_in_every_spelling():
    assert gpus_per_node({"--gpus-per-node": "v100:4"}) == 4
    assert gpus_per_node({"--gpus-per-node": "2"}) == 2
    assert gpus_per_node({"--gres": "nvme:1,gpu:v100:4"}) == 4
    assert gpus_per_node({"--gres": "gpu:3"}) == 3
    assert gpus_per_node({"--gres": "gpu"}) == 1
    assert gpus_per_node({"--gres": "gpu:v100"}) == 1
    assert gpus_per_node({}) is None


@given(st.lists(st.text(alphabet="-=abpNH 1", max_size=8), max_size=8))
def test_no_word_is_lost_or_made_up(words):
    ours, theirs = divide(words, MINE, FLAGS)
    assert sorted(ours + theirs) == sorted(words)
    assert [word for word in words if word in theirs] == [word for word in theirs if word in words]
