"""Anything may happen while nodes are lent; when it calms down the job trains, and no companion is without ranks."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lending_world import LendingWorld

from ones_slurm.engine.guard import check_view
from ones_slurm.model.errors import Unreachable
from ones_slurm.model.plan import Grow, Outcome, Rebatch, Requeue, Shrink, Status
from ones_slurm.model.wire import Phase

DISTURBANCES = st.sampled_from(
    [
        "grow",
        "grow",
        "shrink",
        "requeue",
        "rebatch",
        "crash",
        "slurm down",
        "slurm up",
        "outsider",
        "companion dies",
        "rank dies",
        "limit",
        "refusal",
        "rights",
        "deaf",
        "frozen",
        "guest",
    ]
)
SCRIPT = st.lists(st.tuples(DISTURBANCES, st.floats(0, 12)), min_size=1, max_size=10)


class Story:
    """One job that may be lent nodes, and a daemon that is tried hard."""

    def __init__(self, patience_s, switch_s):
        self.world = LendingWorld(nodes=5, gpus_per_node=2)
        self.world.rough = True
        self.cluster = self.world.cluster()
        self.job_id = self.world.train(nodes=2, patience_s=patience_s, switch_s=switch_s, time_limit_s=1e6)
        self.generations, self.open = {}, {}
        self.run(10)

    @property
    def job(self):
        return self.world.jobs[self.job_id]

    @property
    def wrapper(self):
        return self.world.wrappers[self.job_id]

    def run(self, seconds):
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            look_s = min(until_s, self.world.now_s + 10)
            while self.world.now_s < look_s:
                for event in self.cluster.wait(look_s):
                    if isinstance(event, Outcome):
                        self.open.pop(event.generation, None)
            self.look()

    def look(self):
        try:
            view = self.cluster.observe()
        except Unreachable:
            return None
        check_view(view)
        return next((job for job in view.jobs if job.job_id == self.job_id), None)

    def happen(self, what):  # noqa: PLR0912  (a table of troubles)
        world, wrapper = self.world, self.wrapper
        if what in ("grow", "shrink", "requeue", "rebatch"):
            self.move(what)
        elif what == "crash":
            world.restart_daemon()
            self.cluster = world.cluster(generations=self.generations)
            self.look()
            self.cluster.act(list(self.open.values()))
        elif what in ("slurm down", "slurm up"):
            world.down = what == "slurm down"
        elif what == "outsider" and self.job.state == "RUNNING":
            world.put_back(self.job, "REQUEUED")
        elif what == "companion dies":
            for one in world.lenders(self.job_id)[:1]:
                world.finish(one.job_id, "NODE_FAIL")
        elif what == "rank dies" and len(wrapper.ranks_on) > 1:
            wrapper.ranks_on = wrapper.ranks_on[:-1]
        elif what == "limit":
            world.limited = "" if world.limited else "QOSMaxJobsPerUserLimit"
        elif what == "refusal":
            world.refuses = "" if world.refuses else "Access/permission denied"
        elif what == "rights":
            world.slurm.caller = "user2" if world.slurm.caller == "root" else "root"
        elif what == "deaf":
            wrapper.deaf ^= True
        elif what == "frozen":
            wrapper.frozen ^= True
        elif what == "guest":
            world.submit(nodes=2, user="user2", run_s=60)

    def move(self, kind):
        """As the engine would: only a job that the view calls elastic, with a generation that is new."""
        job = self.look()
        if job is None or not job.elastic or job.move is not None or not job.nodes:
            return
        generation = max(self.generations.get(self.job_id, 0), job.generation) + 1
        held = len(job.nodes)
        about = {"job_id": self.job_id, "generation": generation, "batch": 64 * generation}
        if kind == "grow" and job.can_grow:
            action = Grow(nodes=held + 1, from_nodes=held, **about)
        elif kind == "shrink" and held > 1:
            action = Shrink(keep=(job.batch_host,), **about)
        elif kind == "requeue":
            action = Requeue(nodes=2, from_nodes=held, **about)
        elif kind == "rebatch":
            action = Rebatch(**about)
        else:
            return
        self.generations[self.job_id] = generation
        (outcome,) = self.cluster.act([action])
        if outcome.status is Status.ACCEPTED:
            self.open[generation] = action


@given(SCRIPT, st.sampled_from([4.0, 1e9]), st.sampled_from([0.0, 5.0]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_when_it_calms_down_the_job_trains_and_only_useful_companions_are_left(script, patience_s, switch_s):
    story = Story(patience_s, switch_s)
    world = story.world
    for what, seconds in script:
        story.happen(what)
        story.run(seconds)
    world.down, world.limited, world.refuses, world.slurm.caller = False, "", "", "root"
    story.wrapper.deaf = story.wrapper.frozen = False
    story.run(900)
    assert (story.job.state, story.job.held) == ("RUNNING", False)
    assert story.wrapper.phase is Phase.TRAINING
    assert story.open == {}
    assert world.board.order(story.job_id) is None
    left = [one for one in world.companions(story.job_id) if one.state in ("PENDING", "RUNNING")]
    assert all(set(one.nodes) & set(story.wrapper.ranks_on) for one in left), left
    job = story.look()
    assert (job.elastic, job.move) == (True, None), job.why_rigid
    assert set(story.wrapper.ranks_on) <= set(job.nodes)
    names = [options["job-name"] for options in world.submitted]
    assert len(names) == len(set(names)), "no companion was asked for twice"
