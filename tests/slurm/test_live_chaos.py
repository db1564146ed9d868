"""Anything may happen at any moment of a move; when it calms down, everybody trains and nobody is held or stopped."""

from elastic_world import ElasticWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ones_slurm.model.errors import Unreachable
from ones_slurm.model.plan import Outcome, Rebatch, Requeue, Shrink, Status
from ones_slurm.model.wire import Phase

DISTURBANCES = st.sampled_from(
    ["shrink", "requeue", "rebatch", "crash", "amnesia", "slurm down", "slurm up", "outsider", "node", "rights", "deaf"]
)
SCRIPT = st.lists(st.tuples(DISTURBANCES, st.floats(0, 12)), min_size=1, max_size=10)


class Story:
    """One job in a small world, and a daemon that is tried hard."""

    def __init__(self, patience_s, save_s, renumbers):
        self.world = ElasticWorld(nodes=4, gpus_per_node=2)
        self.world.rough = True
        self.cluster = self.world.cluster()
        self.job_id = self.world.train(nodes=2, patience_s=patience_s, save_s=save_s, renumbers=renumbers)
        self.generations, self.open = {}, {}
        self.run(10)

    @property
    def job(self):
        return self.world.jobs[self.job_id]

    def run(self, seconds):
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            for event in self.cluster.wait(until_s):
                if isinstance(event, Outcome):
                    self.open.pop(event.generation, None)

    def happen(self, what):
        world = self.world
        if what in ("shrink", "requeue", "rebatch"):
            self.move(what)
        elif what in ("crash", "amnesia"):
            world.restart_daemon()
            self.cluster = world.cluster(generations=self.generations)
            if what == "amnesia":  # the journal was lost too, but only before anything was changed
                self.open = {} if not self.job.held and self.job.state == "RUNNING" else self.open
            self.cluster.act(list(self.open.values()))
        elif what in ("slurm down", "slurm up"):
            world.down = what == "slurm down"
        elif what == "outsider" and self.job.state == "RUNNING":
            world.put_back(self.job, "REQUEUED")
        elif what == "node" and not world.drained:
            world.fail_node("c4")
        elif what == "rights":
            world.slurm.caller = "user2" if world.slurm.caller == "root" else "root"
        elif what == "deaf":
            world.wrappers[self.job_id].deaf ^= True

    def move(self, kind):
        """As the engine would: only a job that the view calls elastic, with a generation that is new."""
        try:
            view = self.cluster.observe()
        except Unreachable:
            return
        job = next(job for job in view.jobs if job.job_id == self.job_id)
        if not job.elastic or job.move is not None or not job.nodes:
            return
        generation = max(self.generations.get(self.job_id, 0), job.generation) + 1
        self.generations[self.job_id] = generation
        about = {"job_id": self.job_id, "generation": generation, "batch": 64 * generation}
        if kind == "shrink":
            action = Shrink(keep=(job.batch_host,), **about)
        elif kind == "requeue":
            action = Requeue(nodes=4 - len(job.nodes) % 3, from_nodes=len(job.nodes), **about)
        else:
            action = Rebatch(**about)
        (outcome,) = self.cluster.act([action])
        if outcome.status is Status.ACCEPTED:
            self.open[generation] = action


@given(SCRIPT, st.sampled_from([4.0, 1e9]), st.sampled_from([0.0, 3.0]), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_when_it_calms_down_the_job_trains_and_is_not_held(script, patience_s, save_s, renumbers):
    story = Story(patience_s, save_s, renumbers)
    for what, seconds in script:
        story.happen(what)
        story.run(seconds)
    story.world.down, story.world.slurm.caller = False, "root"
    story.world.wrappers[story.job_id].deaf = False
    story.run(900)
    assert not story.job.held
    assert story.job.state == "RUNNING"
    assert story.world.wrappers[story.job_id].phase is Phase.TRAINING
    assert story.open == {}
    assert story.world.board.order(story.job_id) is None
    view = story.cluster.observe()
    assert [job.elastic for job in view.jobs] == [True], view.jobs
    generations = [generation for generation, _, _ in story.world.wrappers[story.job_id].history]
    assert generations == sorted(generations)
    assert not renumbers or len(set(generations)) == len(generations), "no generation is entered twice"
