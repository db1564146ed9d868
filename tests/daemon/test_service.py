"""Starts that are refused before anything is touched."""

import pytest

from ones_slurm.daemon.service import Service
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.errors import Failed, UsageError
from ones_slurm.model.plan import Outcome, Plan, Requeue, Status
from ones_slurm.model.settings import Daemon, PolicyChoice, Site


@pytest.fixture
def site(tmp_path):
    return Site(daemon=Daemon(state_dir=str(tmp_path)))


def test_an_observer_does_not_take_over_moves_that_it_would_never_end(site):
    requeue = Requeue(job_id="7", generation=2, nodes=2, batch=64)
    with Journal.open(site.daemon.journal) as journal:
        journal.begin_run(Run(policy="equal", seed=1), 1.0)
        journal.record(
            Tick(
                tick=1,
                now_s=1.0,
                took_s=0.0,
                view=ClusterView(1.0, (), ()),
                plan=Plan(),
                memory=Memory(),
                decisions=(Decision(job_id="7", reason="room to grow", action=requeue),),
            )
        )
    with pytest.raises(Failed, match=r"middle of a move.* 7"):
        Service(site, observe=True)
    with Journal.open(site.daemon.journal) as journal:
        assert journal.unfinished_actions() == [requeue]
        journal.end(Outcome("7", 2, Status.DONE), 2.0)
    service = Service(site, observe=True)
    assert service.latest().tick == 1


def test_an_unknown_policy_is_refused_before_the_journal_is_opened(site, tmp_path):
    with pytest.raises(UsageError, match="equally"):
        Service(Site(daemon=site.daemon, policy=PolicyChoice(name="equally")))
    assert list(tmp_path.iterdir()) == []
