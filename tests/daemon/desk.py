"""A real desk (board, latest tick, a small Slurm in memory) and a real door before it, without an engine."""

import asyncio
import contextlib
import pathlib
import socket
import tempfile
import threading

import msgspec
from aiohttp import web

from ones_slurm.daemon.api import BACKLOG, build_app
from ones_slurm.daemon.control import ControlFile
from ones_slurm.daemon.desk import Desk
from ones_slurm.daemon.metrics import Metrics
from ones_slurm.daemon.owners import Owners
from ones_slurm.engine.journal import Journal
from ones_slurm.engine.loop import Latest
from ones_slurm.engine.memory import Decision
from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView
from ones_slurm.model.errors import NotFound
from ones_slurm.model.plan import Plan, Shrink, Target
from ones_slurm.model.settings import Daemon, Moves, Site
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import parse_wish
from ones_slurm.slurm.board import Board


class NoOther:
    """The part of a Slurm that knows no more jobs than the view; `asked` are the questions."""

    def __init__(self):
        self.asked = []

    def job(self, job_id):
        self.asked.append(job_id)
        raise NotFound(f"job {job_id}: Invalid job id specified")

    def accounting(self, *, since_s, until_s=None, job_ids=(), user=None):
        return []


def latest_tick(owners):
    """Every job trains on two nodes, a quarter done, and is to shrink to one."""
    jobs, decisions = [], []
    for number, (job_id, user) in enumerate(owners.items()):
        job = JobView(
            job_id=job_id,
            user=user,
            state=JobState.RUNNING,
            asked_nodes=2,
            gpus_per_node=2,
            partition="gpu",
            name="train",
            nodes=(f"n{2 * number}", f"n{2 * number + 1}"),
            wish=parse_wish("ones:nodes=1-4"),
            elastic=True,
            submit_s=float(number),
            batch=64,
            generation=1,
            progress=Progress(samples=25, total_samples=100),
        )
        jobs.append(job)
        shrink = Shrink(job_id=job_id, generation=2, keep=job.nodes[:1], batch=64)
        decisions.append(Decision(job_id=job_id, reason="others wait", action=shrink))
    nodes = tuple(NodeView(name, 2, True) for job in jobs for name in job.nodes)
    return Latest(
        tick=1,
        took_s=0.1,
        view=ClusterView(1.0, nodes, tuple(jobs)),
        plan=Plan(tuple(Target(job_id=job_id, nodes=1) for job_id in owners)),
        decisions=tuple(decisions),
    )


class Place:
    """What a test holds in its hands: `board`, `slurm` and `latest` behind the door, `daemon` to reach it with."""

    def __init__(self, daemon, owners, moves):
        self.latest = latest_tick(owners)
        self.daemon = daemon
        self.board = Board()
        self.slurm = NoOther()
        self.desk = Desk(
            Site(daemon=daemon, moves=moves),
            mode="act",
            owner=None,
            control=ControlFile(daemon.state_dir),
            board=self.board,
            metrics=Metrics(lambda: self.latest),
            latest=lambda: self.latest,
        )
        self.desk.client = self.slurm
        self.desk.slurm_version = "22.05.8"


@contextlib.contextmanager
def open_door(owners, *, auth="munge", munge_socket="", admins=(), moves=Moves()):  # noqa: B008 -- frozen
    """Runs the door in a thread of its own, with one job for each of `owners` (job id -> user)."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
        pathlib.Path(folder).chmod(0o755)
        listening.bind(("127.0.0.1", 0))
        daemon = Daemon(
            auth=auth,
            url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            socket=f"{folder}/onesd.sock",
            munge_socket=munge_socket,
            state_dir=folder,
            admins=tuple(admins),
        )
        with Journal.open(daemon.journal) as journal:
            journal.event(1.0, "others wait", "11")
        place = Place(daemon, owners, moves)
        ready, ended = threading.Event(), asyncio.Event()

        async def serve():
            owners = Owners(place.desk.owner, place.desk.look_up_owner, daemon.admins)
            runner = web.AppRunner(build_app(place.desk, owners, daemon), shutdown_timeout=2)
            await runner.setup()
            site = (
                web.SockSite(runner, listening)
                if auth == "munge"
                else web.UnixSite(runner, daemon.socket, backlog=BACKLOG)
            )
            await site.start()
            if auth == "socket":
                pathlib.Path(daemon.socket).chmod(0o666)
            ready.set()
            await ended.wait()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        try:
            assert ready.wait(10)
            yield place
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(10)
            assert not thread.is_alive()
            loop.close()


def site_text(daemon):
    """The site file with which a command reaches that door."""
    import toml

    return toml.dumps({"daemon": msgspec.to_builtins(daemon)})
