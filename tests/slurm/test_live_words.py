"""What jobs say, and what the site file says, stands in the view that a policy sees."""

import pytest
from elastic_world import ElasticWorld
from msgspec.structs import replace

from ones_slurm.model.settings import Costs
from ones_slurm.model.sockets import Finished
from ones_slurm.model.wire import Phase, Pipeline, Progress
from ones_slurm.model.wish import Bounds
from ones_slurm.slurm.join import recipe_of

WISH = "ones:pipeline=p.json,replicas=1-2,batch=64-128"
TABLE = Pipeline(4, 8, ((8, 1.5), (16, 2.5)))


@pytest.fixture
def world():
    return ElasticWorld(nodes=4, gpus_per_node=2)


def trains(world, cluster):
    job_id = world.train(nodes=2, wish=WISH)
    until_s = world.now_s + 15
    while world.now_s < until_s:
        cluster.wait(until_s)
    return job_id


def says(world, job_id, **more):
    """The job's last word with something more in it."""
    world.board.put(job_id, replace(world.board.word(job_id).sync, **more), world.now_s)


def seen(cluster, job_id):
    return next(job for job in cluster.observe().jobs if job.job_id == job_id)


def test_a_pipeline_keeps_its_size_until_it_has_told_its_devices(world):
    cluster = world.cluster()
    job_id = trains(world, cluster)
    job = seen(cluster, job_id)
    assert (job.wish.node_bounds(job.asked_nodes, 2), job.pipeline) == (Bounds(2, 2), None)
    says(world, job_id, pipeline=TABLE)
    job = seen(cluster, job_id)
    assert (job.wish.devices, job.pipeline) == (4, TABLE)
    assert job.wish.node_bounds(job.asked_nodes, 2) == Bounds(2, 4, 2)
    assert job.elastic


def test_a_pipeline_that_no_nodes_can_hold_is_left_alone_and_says_why(world):
    cluster = world.cluster()
    job_id = trains(world, cluster)
    says(world, job_id, pipeline=replace(TABLE, devices=3))
    job = seen(cluster, job_id)
    assert not job.elastic
    assert "do not divide each other" in job.why_rigid


def test_the_end_of_a_script_is_told_with_how_far_it_came(world):
    cluster = world.cluster()
    job_id = trains(world, cluster)
    last = Progress(samples=5000, total_samples=5000)
    del world.wrappers[job_id]
    world.board.put(job_id, replace(world.board.word(job_id).sync, phase=Phase.FINISHED, progress=last), world.now_s)
    events = cluster.wait(world.now_s + 5)
    assert Finished(job_id, last) in events
    assert Finished(job_id, last) not in cluster.wait(world.now_s + 5), "it ends once"


def test_moves_cost_what_the_site_file_says(world):
    world.site = replace(world.site, costs=Costs(start_s=20, save_s=5, rescale_s=3, rebatch_s=8, requeue_delay_s=121))
    view = world.cluster().observe()
    assert {"requeue": 146, "shrink": 8, "rebatch": 8}.items() <= view.pauses.items()
    assert view.pause_s == 146


def test_a_recipe_is_the_script_with_its_arguments_and_none_without_a_script():
    assert recipe_of("/home/a/train.sh --lr 1") == recipe_of("/home/a/train.sh --lr 1")
    assert recipe_of("/home/a/train.sh --lr 1") != recipe_of("/home/a/train.sh --lr 2")
    assert recipe_of("") == ""
    assert len(recipe_of("x" * 100_000)) == 16
