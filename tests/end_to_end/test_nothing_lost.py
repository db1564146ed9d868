"""From sbatch to report on a real Slurm: a training is moved three times and learns as if nothing had happened."""

import pytest
from told import SCRIPT, Told, distance

EPOCHS = 150
SAMPLES = 1437

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def undisturbed(site):
    """Two trainings that nobody moves, with different seeds: their distance is what chance alone does."""
    for seed in (1, 2):
        folder = site.home / f"undisturbed-{seed}"
        site.lab.run(["python", SCRIPT, folder, str(seed), str(EPOCHS)], timeout_s=900)
    return Told(site.home / "undisturbed-1"), Told(site.home / "undisturbed-2")


@pytest.fixture(scope="module")
def moved(site, submit_training, undisturbed):
    """The same training, made smaller, requeued larger and made smaller again because others come and go."""
    site.start_daemon()
    job = submit_training("moved", seed=1, epochs=EPOCHS)
    site.until(lambda: site.row(job).get("step"), "the training trains on its four nodes", 90)
    assert site.nodes(job) == 4

    guest = site.sbatch("--nodes=2", "--gres=gpu:1", "--wrap=sleep 600")
    site.until(lambda: site.nodes(guest) == 2, "a guest gets two of the nodes", 90)
    assert site.nodes(job) == 2
    site.until(lambda: site.row(job).get("move") is None, "it trains on two nodes", 60)

    site.lab.run(["scancel", guest])
    site.until(lambda: site.nodes(job) == 4, "the nodes of the guest who left come back", 120)
    site.until(lambda: site.row(job).get("move") is None, "it trains on four nodes again", 90)

    site.sbatch("--nodes=3", "--gres=gpu:1", "--time=1", "--wrap=sleep 20")
    site.until(lambda: site.nodes(job) == 1, "the second guest leaves it one node", 90)
    site.until(lambda: not site.in_queue(job), "the training ends", 240)
    yield job, Told(site.home / "moved")
    assert site.stop_daemon() == 0


def test_it_was_shrunk_in_place_requeued_larger_and_shrunk_again(site, moved):
    job, _ = moved
    done = [(move.kind, move.from_nodes, move.to_nodes) for move in site.moves(job) if move.outcome == "done"]
    assert done[:3] == [("shrink", 4, 2), ("requeue", 2, 4), ("shrink", 4, 1)]


def test_every_sample_of_every_epoch_was_seen_exactly_once(moved):
    _, told = moved
    assert sorted(told.seen) == list(range(EPOCHS))
    for epoch, samples in told.seen.items():
        assert sorted(samples) == list(range(SAMPLES)), f"epoch {epoch}"


def test_it_learns_as_an_undisturbed_training_does(moved, undisturbed):
    _, told = moved
    same_seed, other_seed = undisturbed
    noise = distance(same_seed, other_seed)
    assert distance(told, same_seed) <= noise
    assert abs(told.accuracy - same_seed.accuracy) <= max(abs(same_seed.accuracy - other_seed.accuracy), 2 / 360)


def test_the_report_tells_each_size_once(site, moved):
    job, _ = moved
    text = site.lab.run(["ones", "report", "-j", job], user="user1").stdout
    for expected in ("RESIZED", "REQUEUED", "COMPLETED", "shrink", "requeue"):
        assert expected in text, text


def test_why_tells_the_story(site, moved):
    job, _ = moved
    story = site.ones("why", job).stdout
    assert "shrink" in story
    assert "requeue" in story
