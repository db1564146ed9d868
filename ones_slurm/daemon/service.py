"""`onesd` put together: the engine in a thread of its own, the door in the main one, the desk between them."""

import logging
import os
import random
import threading
import time
from collections.abc import Callable

from ones_slurm import __version__
from ones_slurm.daemon.auth import user_name
from ones_slurm.daemon.clusters import OwnJobs, Watched
from ones_slurm.daemon.control import ControlFile
from ones_slurm.daemon.desk import Desk
from ones_slurm.daemon.metrics import Metrics
from ones_slurm.daemon.notify import tell_systemd
from ones_slurm.engine.experience import Experienced
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.ladder import Ladder
from ones_slurm.engine.loop import Engine, Latest
from ones_slurm.engine.observer import Observer
from ones_slurm.engine.records import Run
from ones_slurm.model.errors import Failed, OnesError, Unreachable
from ones_slurm.model.settings import Site
from ones_slurm.model.sockets import Cluster
from ones_slurm.policy.registry import policy_named
from ones_slurm.slurm.backoff import Backoff
from ones_slurm.slurm.board import Board
from ones_slurm.slurm.choose import choose_client
from ones_slurm.slurm.client import SlurmClient
from ones_slurm.slurm.lenders import lender_of
from ones_slurm.slurm.live import LiveCluster
from ones_slurm.slurm.probe import SiteFacts, probe

log = logging.getLogger("onesd")

# Ours: while Slurm has never answered there is nothing to protect it from but our own impatience.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 60.0


class Service:
    """One daemon. `owner` is set to keep to that user's jobs, `observe` to never act.

    Raises `UsageError` for a wrong site file, `Failed` where another onesd writes the same journal, or an observer
    would leave moves unfinished.
    """

    def __init__(self, site: Site, *, observe: bool = False, owner: str | None = None) -> None:
        self._site, self._observe, self._owner = site, observe, owner
        self._policy = policy_named(site.policy.full_name)
        self._journal = Journal.open(site.daemon.journal)
        if observe:
            self._leave_nobody_halfway()
        self._before = Latest(
            tick=self._journal.last_tick(), plan=self._journal.last_plan(), trouble="Slurm has not answered yet"
        )
        self._engine: Engine | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._on_end: Callable[[], object] = lambda: None
        # Waits of many daemons must not fall together, so this chance alone has no seed.
        self._backoff = Backoff(random.Random(), first_s=_FIRST_WAIT_S, longest_s=_LONGEST_WAIT_S)
        self.failed = False
        self._board = Board()
        self._control = ControlFile(site.daemon.state_dir)
        self._metrics = Metrics(self.latest)
        self.desk = Desk(
            site,
            mode="observe" if observe else "act",
            owner=owner,
            control=self._control,
            board=self._board,
            metrics=self._metrics,
            latest=self.latest,
        )

    def _leave_nobody_halfway(self) -> None:
        """A job in the middle of a move may be held or stopped, and an observer would never end that."""
        jobs = sorted({action.job_id for action in self._journal.unfinished_actions()})
        if jobs:
            self._journal.close()
            raise Failed(
                f"jobs are in the middle of a move that an earlier onesd began: {', '.join(jobs)}",
                hint="start once without --observe until `ones queue` shows no move, then observe",
            )

    def latest(self) -> Latest:
        """The last tick, and what is wrong now."""
        return self._engine.latest if self._engine is not None else self._before

    def start(self, on_end: Callable[[], object]) -> None:
        """Starts the engine's thread; `on_end` is called in it when it ends by itself, which it should not."""
        self._on_end = on_end
        self._thread.start()

    def stop(self) -> None:
        """Asks the engine to begin nothing more; returns at once."""
        self._stop.set()

    def join(self, within_s: float) -> None:
        """Waits for the engine. One that hangs in a Slurm command is left: its moves are in the journal."""
        self._thread.join(within_s)
        if self._thread.is_alive():
            log.warning("stopped while Slurm was being asked; open moves go on from the journal at the next start")
        else:
            self._journal.close()

    def _work(self) -> None:
        try:
            cluster = self._connect()
            if cluster is not None:
                seed = self._site.policy.seed
                self._engine = Engine(cluster, self._policy, self._journal, self._site.engine, seed)
                self._engine.run(self._stop)
        except OnesError as error:
            self.failed = True
            log.critical("%s", error)
        except Exception:
            self.failed = True
            log.exception("the engine has a fault of its own")
        if not self._stop.is_set():
            self._on_end()

    def _connect(self) -> Cluster | None:
        """Waits for Slurm, however long it takes; None when the daemon is stopped meanwhile."""
        while not self._stop.is_set():
            tell_systemd("WATCHDOG=1")
            try:
                facts = self._backoff.ask(lambda: probe(user_name(os.getuid())))
                client, why = choose_client()
            except Unreachable as error:
                self._tell(error)
                self._stop.wait(max(self._backoff.wait_s, 0.1))
            else:
                log.info("Slurm %s answers %s; asked by %s", facts.version, facts.user, why)
                for line in (*facts.ruled_out, *facts.notes):
                    log.info("%s", line)
                return self._cluster(client, facts)
        return None

    def _tell(self, error: Unreachable) -> None:
        if error.message != self._before.trouble:
            log.warning("Slurm does not answer, will ask again: %s", error)
        self._before = Latest(tick=self._before.tick, plan=self._before.plan, trouble=error.message)

    def _cluster(self, client: SlurmClient, facts: SiteFacts) -> Cluster:
        self.desk.client, self.desk.slurm_version = client, facts.version
        self.desk.private_data = frozenset(facts.private_data)
        mode = "observe" if self._observe else "act"
        seed, name = self._site.policy.seed, self._site.policy.full_name
        self._journal.begin_run(
            Run(policy=name, seed=seed, version=__version__, site=self._site.name, mode=mode), time.time()
        )
        if self._site.moves.companions == "daemon" and self._owner is None and os.getuid() != 0:
            log.warning("companions are submitted for this user's own jobs only: sbatch --uid is root's alone")
        cluster: Cluster = LiveCluster(
            client,
            self._board,
            self._site,
            facts,
            backoff=self._backoff,
            generations=self._journal.last_generations(),
            lender=None if self._observe else lender_of(self._site, self._board),
            owner=self._owner,
            requeues=None if self._observe else self._journal.last_requeues(),
        )
        cluster = Experienced(cluster, self._journal, self._site.policy)
        if self._owner is not None:
            cluster = OwnJobs(cluster, self._owner)
        cluster = Ladder(cluster, self._site.adoption, self._journal, self._control.word)
        if self._observe:
            cluster = Observer(cluster)
        log.info("mode %s, policy %s, seed %d, tick %d", mode, name, seed, self._before.tick)
        return Watched(cluster, self._metrics, lambda: tell_systemd("WATCHDOG=1"))
