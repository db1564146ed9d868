"""Who is asking: a munge credential over exactly this request, or the kernel's word on a Unix socket."""

import asyncio
import functools
import hmac
import logging
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from ones_slurm.model.errors import NotAllowed
from ones_slurm.model.settings import Daemon
from ones_slurm.peer import munge

log = logging.getLogger("onesd.auth")

_SCHEME = "MUNGE "
_PEERCRED = struct.Struct("3i")  # pid, uid, gid: unix(7)
# A credential over 64 hex digits is under 400 bytes; nothing longer needs to be shown to munged.
_MAX_CREDENTIAL = 4096

Handler = Callable[[web.Request, "Caller"], Awaitable[web.StreamResponse]]
RawHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Authenticate = Callable[[web.Request], Awaitable["Caller"]]


class Caller(msgspec.Struct, frozen=True):
    """An authenticated user of this cluster. `name` is the number in digits where the host knows no name for it."""

    uid: int
    name: str


class NoCredential(NotAllowed):
    """The request says not at all who is asking; 401 instead of 403."""


def doorkeeper(daemon: Daemon) -> Callable[[Handler], RawHandler]:
    """A decorator of handlers: tells each one who is asking, and logs a line for every refusal, whoever refuses."""
    authenticate = way_of(daemon)

    def keep(handler: Handler) -> RawHandler:
        async def kept(request: web.Request) -> web.StreamResponse:
            caller = None
            try:
                caller = await authenticate(request)
                return await handler(request, caller)
            except NotAllowed as error:
                _log_refusal(request, caller, error)
                raise

        return kept

    return keep


def way_of(daemon: Daemon) -> Authenticate:
    """How this site's daemon learns who is asking."""
    return by_munge(daemon.munge_socket) if daemon.auth == "munge" else by_kernel


def by_munge(munge_socket: str) -> Authenticate:
    """Checks `Authorization: MUNGE …` with the munged at `munge_socket`, once, and against the request's own bytes."""

    async def authenticate(request: web.Request) -> Caller:
        header = request.headers.get("Authorization", "")
        if not header.startswith(_SCHEME):
            raise NoCredential("this request carries no munge credential", hint="use `ones`, or see Authorization")
        if len(header) > _MAX_CREDENTIAL:
            raise NotAllowed("the credential is too long to be one")
        body = await request.read()
        # munged answers in about 0.2 ms, but a munged that hangs must not hang the daemon.
        credential = await asyncio.to_thread(munge.decode, header.removeprefix(_SCHEME), munge_socket)
        expected = munge.request_digest(request.method, request.raw_path, body)
        if not hmac.compare_digest(credential.payload, expected):
            raise NotAllowed(f"the credential of uid {credential.uid} was made for another request")
        return Caller(credential.uid, user_name(credential.uid))

    return authenticate


async def by_kernel(request: web.Request) -> Caller:
    """Asks the kernel which uid opened this connection to our Unix socket."""
    connection: socket.socket | None = request.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        raise NoCredential("this connection did not come over the Unix socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    _, uid, _ = _PEERCRED.unpack(raw)
    return Caller(uid, user_name(uid))


@functools.lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """The login name, as Slurm shows it; the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _log_refusal(request: web.Request, caller: Caller | None, error: NotAllowed) -> None:
    """What the peer wrote is quoted and cut, for it is untrusted."""
    log.warning(
        "refused uid=%s peer=%s request=%r reason=%r",
        caller.uid if caller else "-",
        request.remote or "local",
        f"{request.method} {request.raw_path}"[:200],
        error.message,
    )
