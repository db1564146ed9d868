"""The policy `ones` on a real Slurm: it measures a training, and gives it the nodes and the batch that suit it."""

import json

import pytest
from told import SCRIPT

POLICY = "ones"
# A device that takes 4 ms a sample: hours of work on one node, and the cores of the machine hardly matter.
SAMPLE_S, EPOCHS = 0.004, 2000

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def chosen(site):
    """A training that begins on one node with its base batch, alone in the cluster."""
    site.start_daemon()
    job = site.sbatch(
        "--comment=ones:nodes=1-4,batch=64-512",
        "--nodes=1",
        "--gres=gpu:1",
        "--requeue",
        "--open-mode=append",
        "--output=chosen-%j.out",
        "--time=60",
        f"--wrap=exec ones-run -- python {SCRIPT} $HOME/chosen 1 {EPOCHS} 0 {SAMPLE_S}",
    )
    site.until(lambda: site.row(job).get("step"), "it trains", 120)
    started = site.row(job)
    grown = site.until(lambda: next((m for m in site.moves(job) if m.outcome == "done"), None), "it is moved", 180)
    site.until(lambda: site.row(job).get("samples_per_s") and not site.row(job)["move"], "it is measured again", 120)
    yield job, started, grown
    site.lab.run(["scancel", job])
    assert site.stop_daemon() == 0


def test_it_gets_more_nodes_and_a_larger_batch(site, chosen):
    job, started, grown = chosen
    assert (started["nodes"], started["batch"]) == (1, 64)
    assert grown.to_nodes > 1
    assert 64 < grown.batch <= 512
    assert site.nodes(job) > 1
    assert site.row(job)["batch"] > 64


def test_why_gives_the_reason_in_numbers(site, chosen):
    job, _, grown = chosen
    story = json.loads(site.ones("why", "--json", job).stdout)["story"]
    (decision,) = [line for line in story if line["what"] == "decision" and line["reason"] == grown.why]
    numbers = decision["numbers"]
    assert "instead of" in decision["reason"]
    assert numbers["left_after_s"] + numbers["move_cost_gpu_s"] / numbers["size"] < numbers["left_before_s"]
    assert numbers["gain_s"] == pytest.approx(numbers["left_before_s"] - numbers["left_after_s"])


def test_what_it_measured_is_in_the_journal_and_every_plan_replays(site, chosen):
    from ones_slurm.engine.journal import Journal
    from ones_slurm.engine.replay import replay
    from ones_slurm.policy.registry import policy_named

    job, _, grown = chosen
    with Journal.read(site.lab.folder / "home/operator/onesd/journal.sqlite") as journal:
        measured = {speed.nodes for speed in journal.known()[job].speeds}
        ticks, difference = replay(journal, policy_named)
        pauses = journal.pauses()
    assert {1, grown.to_nodes} <= measured
    assert pauses[grown.kind] > 0
    assert ticks > 3
    assert difference is None
