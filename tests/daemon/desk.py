"""A desk that holds what a test puts on it, and a real door before it: aiohttp, sockets, munge and all."""

import asyncio
import contextlib
import pathlib
import socket
import tempfile
import threading

from aiohttp import web

from ones_slurm.daemon.answers import JobRow, PlanNow, Queue, State, Why
from ones_slurm.daemon.api import build_app
from ones_slurm.daemon.owners import Owners
from ones_slurm.engine.records import StoryLine
from ones_slurm.model.plan import Shrink, Target
from ones_slurm.model.settings import Daemon
from ones_slurm.model.wire import Reply


class PaperDesk:
    """Jobs by owner; `heard` is what arrived, `put` a new order."""

    def __init__(self, owners):
        self.owners = owners
        self.heard = []
        self.looked_up = []
        self._orders = {}
        self._wakes = []

    def owner(self, job_id):
        return self.owners.get(job_id)

    def look_up_owner(self, job_id):
        self.looked_up.append(job_id)

    def accept(self, job_id, sync):
        self.heard.append((job_id, sync))

    def reply(self, job_id):
        return Reply(self._orders.get(job_id))

    def listen(self, job_id, wake):
        entry = (job_id, wake)
        self._wakes.append(entry)
        return lambda: self._wakes.remove(entry)

    @property
    def listeners(self):
        return len(self._wakes)

    def put(self, job_id, order):
        self._orders[job_id] = order
        for listening, wake in list(self._wakes):
            if listening == job_id:
                wake()

    def _row(self, job_id):
        return JobRow(job_id=job_id, partition="gpu", name="train", user=self.owners[job_id], state="running", nodes=2)

    def queue(self):
        return Queue(jobs=tuple(map(self._row, self.owners)), taken_s=1.0)

    def job(self, job_id):
        return self._row(job_id) if job_id in self.owners else None

    def why(self, job_id):
        return Why(job_id=job_id, story=(StoryLine(at_s=1.0, tick=1, what="decision", reason="because"),))

    def plan(self):
        return PlanNow(
            tick=1,
            taken_s=1.0,
            policy="equal",
            targets=tuple(Target(job_id=job_id, nodes=1) for job_id in self.owners),
            actions=tuple(Shrink(job_id=job_id, generation=2, keep=("c1",), batch=64) for job_id in self.owners),
        )

    def state(self):
        return State(
            program="0",
            mode="act",
            policy="equal",
            seed=1,
            interval_s=1.0,
            started_s=0.0,
            tick=1,
            last_tick_s=1.0,
            tick_took_s=0.1,
            jobs=1,
            elastic_jobs=1,
            moves=0,
            slurm_version="22.05.8",
        )

    def metrics(self):
        return b"ones_jobs 1\n"


@contextlib.contextmanager
def open_door(desk, *, auth, munge_socket="", admins=()):
    """Runs the door in a thread of its own; yields the [daemon] settings to reach it with."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
        pathlib.Path(folder).chmod(0o755)
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        daemon = Daemon(
            auth=auth,
            url=f"http://127.0.0.1:{port}",
            socket=f"{folder}/onesd.sock",
            munge_socket=munge_socket,
            admins=tuple(admins),
        )
        ready, ended = threading.Event(), asyncio.Event()

        async def serve():
            owners = Owners(desk.owner, desk.look_up_owner, daemon.admins)
            runner = web.AppRunner(build_app(desk, owners, daemon), shutdown_timeout=2)
            await runner.setup()
            site = web.SockSite(runner, listening) if auth == "munge" else web.UnixSite(runner, daemon.socket)
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
            yield daemon
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(10)
            assert not thread.is_alive()
            loop.close()
