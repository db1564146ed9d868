"""The loop: observe, decide, reconcile, write down, act, wait. It keeps nothing that the journal does not hold."""

import contextlib
import logging
import threading
from collections.abc import Sequence

import msgspec

from ones_slurm.engine.guard import GuardedCluster, GuardedPolicy, InvariantError, check_actions
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.ladder import Laddered
from ones_slurm.engine.memory import Decision
from ones_slurm.engine.reconcile import reconcile
from ones_slurm.engine.records import Tick
from ones_slurm.engine.replay import chance
from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.errors import Failed, OnesError
from ones_slurm.model.plan import Action, Outcome, Plan, Status
from ones_slurm.model.settings import Engine as EngineSettings
from ones_slurm.model.sockets import Changed, Cluster, Event, Policy

log = logging.getLogger(__name__)

# A stop is noticed within this time, whatever the interval between ticks (ours: systemd waits longer).
STOP_CHECK_S = 1.0
# Views are the bulk of the journal and serve replays only; a week lets an incident be looked at after a holiday (ours).
KEEP_VIEWS_S = 7 * 86400.0
PRUNE_EVERY_TICKS = 1000


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """The last tick, for whoever asks from another thread; `trouble` says why the one after it did not happen."""

    tick: int = 0
    took_s: float = 0.0
    view: ClusterView | None = None
    plan: Plan = Plan()
    decisions: tuple[Decision, ...] = ()
    trouble: str = ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """What the decisions led to."""
        return tuple(decision.action for decision in self.decisions if decision.action is not None)


class Engine:
    """One cluster, one policy, one journal. All of its methods belong to one thread; `latest` is safe to read anywhere.

    After a restart it goes on where the journal ends: the next tick number, the reconciler's memory, and every action
    without an outcome is sent again (which is safe, for actions are idempotent).
    """

    def __init__(self, cluster: Cluster, policy: Policy, journal: Journal, settings: EngineSettings, seed: int) -> None:
        self._cluster = GuardedCluster(cluster)
        self._policy = Laddered(GuardedPolicy(policy))
        self._journal = journal
        self._settings = settings
        self._seed = seed
        self._tick = journal.last_tick()
        # What a waiting job was told is told again after a restart, for the cluster may have forgotten it.
        self._memory = msgspec.structs.replace(journal.last_memory(), sized={})
        self._generations = journal.last_generations()
        self._unsent: list[Action] = journal.unfinished_actions()
        self._requested: dict[str, int] = {}
        self.latest = Latest(tick=self._tick, plan=journal.last_plan())

    def run(self, stop: threading.Event) -> None:
        """Ticks every `interval_s`, sooner when something worth it happens, until `stop` is set."""
        while not stop.is_set():
            self.tick()
            due_s = self._cluster.now() + self._settings.interval_s
            while not stop.is_set() and (now_s := self._cluster.now()) < due_s:
                if self.wait(min(due_s, now_s + STOP_CHECK_S)):
                    break

    def wait(self, until_s: float) -> list[Event]:
        """Lets the cluster carry moves on, and writes down what happened."""
        events = self._cluster.wait(until_s)
        try:
            for event in events:
                if isinstance(event, Outcome):
                    self._end(event)
                else:
                    what = event.what if isinstance(event, Changed) else "the job is finished"
                    self._journal.event(self._cluster.now(), what, event.job_id)
        except OnesError as error:
            self._trouble(error)
        return events

    def tick(self) -> Latest:
        """One round. Trouble (an unreachable cluster, a broken invariant) is told and changes nothing."""
        try:
            self._send(self._unsent)
            self._decide_and_act()
        except OnesError as error:
            self._trouble(error)
        return self.latest

    def _decide_and_act(self) -> None:
        began_s = self._cluster.now()
        view = self._with_generations(self._cluster.observe())
        number = self._tick + 1
        plan = self._policy.decide(view, chance(self._seed, number))
        decisions, memory = reconcile(view, plan, self._requested.keys(), self._memory, self._settings)
        actions = [decision.action for decision in decisions if decision.action is not None]
        check_actions(view, actions)
        took_s = self._cluster.now() - began_s
        self._journal.record(
            Tick(
                tick=number,
                now_s=view.now_s,
                took_s=took_s,
                view=view,
                plan=plan,
                memory=memory,
                decisions=decisions,
            )
        )
        self._tick, self._memory = number, memory
        self._generations.update((action.job_id, action.generation) for action in actions)
        self.latest = Latest(tick=number, took_s=took_s, view=view, plan=plan, decisions=decisions)
        self._send(actions)
        if number % PRUNE_EVERY_TICKS == 0:
            self._journal.prune(view.now_s - KEEP_VIEWS_S)

    def _send(self, actions: Sequence[Action]) -> None:
        """Hands actions to the cluster; those that did not reach it are sent again at the next tick."""
        self._unsent = list(actions)
        if not actions:
            return
        self._requested.update((action.job_id, action.generation) for action in actions)
        for outcome in self._cluster.act(actions):
            if outcome.status is not Status.ACCEPTED:
                self._end(outcome)
        self._unsent = []

    def _end(self, outcome: Outcome) -> None:
        if self._requested.get(outcome.job_id) == outcome.generation:
            del self._requested[outcome.job_id]
        self._journal.end(outcome, self._cluster.now())
        level = logging.WARNING if outcome.status is Status.FAILED else logging.INFO
        log.log(level, "job %s, generation %d: %s: %s", *msgspec.structs.astuple(outcome))

    def _trouble(self, error: OnesError) -> None:
        told = str(error)
        if told != self.latest.trouble:
            (log.error if isinstance(error, InvariantError) else log.warning)("%s", told)
            with contextlib.suppress(Failed):  # the journal itself may be the trouble
                self._journal.event(self._cluster.now(), error.message)
        self.latest = msgspec.structs.replace(self.latest, trouble=told)

    def _with_generations(self, view: ClusterView) -> ClusterView:
        """The view with each job's generation no lower than any action that the journal knows."""
        known = self._generations
        if not any(known.get(job.job_id, 0) > job.generation for job in view.jobs):
            return view
        return msgspec.structs.replace(
            view,
            jobs=tuple(
                msgspec.structs.replace(job, generation=known[job.job_id])
                if known.get(job.job_id, 0) > job.generation
                else job
                for job in view.jobs
            ),
        )
