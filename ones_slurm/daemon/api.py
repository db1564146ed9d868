"""The door: HTTP in, the desk's answers out. Everything that arrives here is untrusted until it has passed."""

import asyncio
import contextlib
import logging
import re
from typing import TypeVar

import msgspec
from aiohttp import web

from ones_slurm.daemon.auth import Caller, NoCredential, RawHandler, doorkeeper, way_of
from ones_slurm.daemon.desk import Desk
from ones_slurm.daemon.owners import Owners
from ones_slurm.daemon.page import Page
from ones_slurm.model.adoption import Rung
from ones_slurm.model.errors import NotAllowed, NotFound, OnesError, Unreachable, UsageError
from ones_slurm.model.settings import Daemon
from ones_slurm.model.wire import LoanAnswer, Loans, Reply, Sync, Told

log = logging.getLogger("onesd.api")

MAX_BODY_BYTES = 64 * 1024
# After a restart of the daemon all jobs come to the door at once; Linux allows as many by default (somaxconn).
BACKLOG = 4096
# Ours: long enough to be cheap, short enough for every proxy and firewall on the way to keep the connection.
MAX_WAIT_S = 30.0

Message = TypeVar("Message", Sync, LoanAnswer, Told)

_JOB_ID = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?", re.ASCII)


class Door:
    """The handlers, on one desk."""

    def __init__(self, desk: Desk, owners: Owners) -> None:
        self._desk = desk
        self._owners = owners
        self._stopping = False
        self._waiting: set[asyncio.Event] = set()

    async def sync(self, request: web.Request, caller: Caller) -> web.Response:
        """A job says how it stands and gets its order: at once if there is a new one, else after `wait_s`."""
        job_id, wait_s = _job_id(request), _wait_s(request)
        await self._owners.check_may_steer(caller, job_id)
        message = _decoded(await request.read(), Sync)
        self._desk.accept(job_id, message)
        return _json(await self._reply(job_id, wait_s))

    async def loans(self, _: web.Request, caller: Caller) -> web.Response:
        """An agent asks what it is to submit for its user."""
        return _json(self._desk.loans(caller.name))

    async def loan(self, request: web.Request, caller: Caller) -> web.Response:
        """A job or an agent says what became of a companion."""
        job_id = _job_id(request)
        await self._owners.check_may_steer(caller, job_id)
        self._desk.take_answer(job_id, _decoded(await request.read(), LoanAnswer))
        return _json(Loans())

    async def queue(self, _: web.Request, caller: Caller) -> web.Response:
        queue = self._desk.queue()
        if not self._owners.may_see_all(caller):
            own = tuple(row for row in queue.jobs if row.user == caller.name)
            queue = msgspec.structs.replace(queue, jobs=own)
        return _json(queue)

    async def job(self, request: web.Request, caller: Caller) -> web.Response:
        job_id = _job_id(request)
        await self._owners.check_may_read(caller, job_id)
        row = self._desk.job(job_id)
        if row is None:
            raise NotFound(f"job {job_id} is not in the queue", hint="finished jobs: `ones report`, `ones why`")
        return _json(row)

    async def why(self, request: web.Request, caller: Caller) -> web.Response:
        job_id = _job_id(request)
        await self._owners.check_may_read(caller, job_id)
        return _json(await asyncio.to_thread(self._desk.why, job_id))

    async def plan(self, _: web.Request, caller: Caller) -> web.Response:
        plan = self._desk.plan()
        if not self._owners.may_see_all(caller):
            rows = [row for row in self._desk.queue().jobs if row.user == caller.name]
            own = {row.job_id for row in rows}
            advised = {row.job_id for row in rows if row.rung is Rung.ADVISE}
            plan = msgspec.structs.replace(
                plan,
                targets=tuple(target for target in plan.targets if target.job_id in own),
                actions=tuple(action for action in plan.actions if action.job_id in own),
                advice=tuple(target for target in plan.advice if target.job_id in advised),
            )
        return _json(plan)

    async def state(self, _: web.Request, __: Caller) -> web.Response:
        return _json(self._desk.state())

    async def control(self, request: web.Request, caller: Caller) -> web.Response:
        """An administrator pauses, drains or resumes."""
        self._owners.check_may_control(caller)
        told = _decoded(await request.read(), Told)
        return _json(await asyncio.to_thread(self._desk.tell, told.word, caller.name))

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._desk.metrics(), content_type="text/plain", charset="utf-8")

    def stop(self) -> None:
        """Lets every long poll return what stands now, so that none holds up the daemon's end."""
        self._stopping = True
        for changed in self._waiting:
            changed.set()

    async def _reply(self, job_id: str, wait_s: float) -> Reply:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        changed = asyncio.Event()
        self._waiting.add(changed)

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        end = self._desk.listen(job_id, wake)
        try:
            while True:
                reply, unfollowed = self._desk.reply(job_id)
                left_s = until - loop.time()
                if unfollowed or changed.is_set() or left_s <= 0 or self._stopping:
                    return reply
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await changed.wait()
        finally:
            end()
            self._waiting.discard(changed)


def build_app(desk: Desk, owners: Owners, daemon: Daemon) -> web.Application:
    """The aiohttp application; its clean-up signal wakes every long poll and stream first."""
    door, page = Door(desk, owners), Page(desk, owners, way_of(daemon))
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[explain])
    keep = doorkeeper(daemon)
    app.add_routes(
        [
            web.post("/v1/jobs/{job_id}/sync", keep(door.sync)),
            web.post("/v1/jobs/{job_id}/loan", keep(door.loan)),
            web.get("/v1/loans", keep(door.loans)),
            web.get("/v1/queue", keep(door.queue)),
            web.get("/v1/jobs/{job_id}", keep(door.job)),
            web.get("/v1/jobs/{job_id}/why", keep(door.why)),
            web.get("/v1/plan", keep(door.plan)),
            web.get("/v1/status", keep(door.state)),
            web.post("/v1/control", keep(door.control)),
            web.get("/v1/page", keep(page.link)),
            web.get("/metrics", door.metrics),
            *page.routes(),
        ]
    )

    async def wake_all(_: web.Application) -> None:
        door.stop()
        page.stop()

    app.on_shutdown.append(wake_all)
    return app


@web.middleware
async def explain(request: web.Request, handler: RawHandler) -> web.StreamResponse:
    """Turns every failure into a status and `{"error": …, "hint": …}`; only our own faults are logged with a trace."""
    try:
        return await handler(request)
    except OnesError as error:
        if not isinstance(error, UsageError | NotAllowed | NotFound):
            log.warning("request=%r failed: %s", f"{request.method} {request.raw_path}"[:200], error.message)
        return _complaint(_status(error), error.message, error.hint)
    except web.HTTPRequestEntityTooLarge:
        return _complaint(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except web.HTTPException as error:
        return _complaint(error.status, f"{request.method} {request.path[:200]!r}: {error.reason}")
    except Exception:
        log.exception("request=%r failed", f"{request.method} {request.raw_path}"[:200])
        return _complaint(500, "onesd has a fault of its own", "its log has the details")


def _status(error: OnesError) -> int:
    by_class: tuple[tuple[type[OnesError], int], ...] = (
        (NoCredential, 401),
        (NotAllowed, 403),
        (UsageError, 400),
        (NotFound, 404),
        (Unreachable, 503),
    )
    return next((status for kind, status in by_class if isinstance(error, kind)), 500)


def _complaint(status: int, error: str, hint: str | None = None) -> web.Response:
    return web.json_response({"error": error, "hint": hint}, status=status)


def _json(answer: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _job_id(request: web.Request) -> str:
    job_id = request.match_info["job_id"]
    if not _JOB_ID.fullmatch(job_id):
        raise UsageError(f"{job_id[:40]!r} is not a job id", hint="a number, or 12_3 for a task of an array")
    return job_id


def _wait_s(request: web.Request) -> float:
    given = request.query.get("wait_s", "0")
    try:
        wait_s = float(given)
    except ValueError:
        wait_s = -1.0
    if not 0.0 <= wait_s <= MAX_WAIT_S:
        raise UsageError(f"wait_s={given[:40]!r} is not a number of seconds between 0 and {MAX_WAIT_S:g}")
    return wait_s


def _decoded(body: bytes, kind: type[Message]) -> Message:
    name = kind.__name__
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(f"this is not a {name}: {error}", hint="see ones_slurm/model/wire.py") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"this is not a {name}: not UTF-8") from error
