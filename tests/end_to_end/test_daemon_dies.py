"""`onesd` may be killed at any moment: jobs live on at their size, and the next `onesd` goes on from the journal."""

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(1800)]


def held(site, job):
    return "JobHeld" in site.lab.run(["squeue", "-h", "-j", job, "-o", "%r"], user="root", check=False).stdout


def test_killed_in_the_middle_of_moves_it_goes_on_and_leaves_nobody_stopped_or_held(site, submit_training):
    site.start_daemon()
    job = submit_training("survivor", seed=3, epochs=300, asked=1)
    site.until(lambda: site.row(job).get("step"), "it trains on one node", 90)

    # Alone in the cluster it is requeued larger; the daemon dies as soon as that has begun.
    site.until(lambda: (site.row(job).get("move") or "").startswith("requeue"), "its growth begins", 60)
    site.kill_daemon()
    site.start_daemon()
    site.until(lambda: site.nodes(job) == 4, "the growth that was begun is carried to its end", 120)
    assert not held(site, job)
    site.until(lambda: site.row(job).get("move") is None and site.row(job).get("step"), "it trains on four nodes", 90)

    # Dead for longer: the job trains on, at its size.
    site.kill_daemon()
    before = site.lab.run(["bash", "-c", f"cat ~/ones-runs/{job}/progress.json"]).stdout
    site.until(
        lambda: site.lab.run(["bash", "-c", f"cat ~/ones-runs/{job}/progress.json"]).stdout != before,
        "it makes progress without a daemon",
        60,
    )
    assert site.nodes(job) == 4

    site.start_daemon()
    site.until(lambda: site.row(job).get("step"), "the new daemon hears of it", 60)
    moves = [(move.kind, move.to_nodes, str(move.outcome)) for move in site.moves(job)]
    assert moves == [("requeue", 4, "done")]
    site.lab.run(["scancel", job])
    assert site.stop_daemon() == 0
