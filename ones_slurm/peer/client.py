"""The client's side of the door: one HTTP request, proven to come from this user, answered or explained.

Synchronous and without state, so that a wrapper may use it from any thread and nothing has to be mended after a fault:
each request opens a connection, and no daemon minds a few dozen of those a second.
"""

import http.client
import socket
import urllib.parse
from typing import TypeVar

import msgspec

from ones_slurm.model.errors import Failed, NotAllowed, NotFound, OnesError, Unreachable, UsageError
from ones_slurm.model.settings import Daemon
from ones_slurm.model.wire import LoanAnswer, Loans, Reply, Sync
from ones_slurm.peer import munge

Answer = TypeVar("Answer")

# Ours: a daemon that is only busy answers within a second or two; a wrapper that waits longer delays its training.
_ANSWER_WITHIN_S = 10.0
_MAX_ANSWER_BYTES = 64 * 2**20

_FAILURES: dict[int, type[OnesError]] = {
    400: UsageError,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    413: UsageError,
    503: Unreachable,
}


class Complaint(msgspec.Struct, frozen=True):
    """The body of every answer that is not 200: what was wrong, and what would be right."""

    error: str
    hint: str | None = None


class Client:
    """Asks `onesd`, with the credentials of this process. Safe to share between threads."""

    def __init__(self, daemon: Daemon, *, answer_within_s: float = _ANSWER_WITHIN_S) -> None:
        self._daemon = daemon
        self._answer_within_s = answer_within_s
        if daemon.auth == "socket":
            self._where = daemon.socket
        else:
            self._where = daemon.url
            self._host, self._port = _address(daemon.url)

    def sync(self, job_id: str, sync: Sync, wait_s: float = 0.0) -> Reply:
        """Tells the daemon how the job stands; returns its standing order, at the latest after `wait_s` (up to 30) s.

        Raises `Unreachable`, or `NotAllowed`, `UsageError`, `NotFound` with the daemon's words.
        """
        target = f"/v1/jobs/{urllib.parse.quote(job_id, safe='')}/sync?wait_s={wait_s:g}"
        return self._ask("POST", target, msgspec.json.encode(sync), Reply, wait_s)

    def loans(self) -> Loans:
        """The companions that this user's agent is to submit; raises as `sync` does."""
        return self.get("/v1/loans", Loans)

    def answer(self, job_id: str, answer: LoanAnswer) -> None:
        """Tells the daemon what became of a companion that was to be submitted for this job; raises as `sync` does."""
        target = f"/v1/jobs/{urllib.parse.quote(job_id, safe='')}/loan"
        self._ask("POST", target, msgspec.json.encode(answer), Loans, 0.0)

    def get(self, path: str, kind: type[Answer]) -> Answer:
        """One of the daemon's answers, checked to be a `kind`; raises as `sync` does."""
        return self._ask("GET", path, b"", kind, 0.0)

    def post(self, path: str, message: msgspec.Struct, kind: type[Answer]) -> Answer:
        """Sends one message, answered by a `kind`; raises as `sync` does."""
        return self._ask("POST", path, msgspec.json.encode(message), kind, 0.0)

    def _ask(self, method: str, target: str, body: bytes, kind: type[Answer], wait_s: float) -> Answer:
        headers = {"Content-Type": "application/json"} if body else {}
        if self._daemon.auth == "munge":
            proof = munge.encode(munge.request_digest(method, target, body), self._daemon.munge_socket)
            headers["Authorization"] = f"MUNGE {proof}"
        connection = self._connection(self._answer_within_s + wait_s)
        try:
            connection.request(method, target, body or None, headers)
            response = connection.getresponse()
            answer = response.read(_MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"onesd does not answer at {self._where}: {str(error) or type(error).__name__}",
                hint="is onesd running, and is the [daemon] table of the site file right?",
            ) from error
        finally:
            connection.close()
        return _read(response.status, answer, kind)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._daemon.auth == "socket":
            return _UnixConnection(self._daemon.socket, timeout_s)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, where the kernel tells the daemon who we are."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _address(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path.strip("/"):
        raise UsageError(f"daemon.url = {url!r} is not the address of onesd", hint="for example http://head:7077")
    return parts.hostname, port


def _read(status: int, answer: bytes, kind: type[Answer]) -> Answer:
    if status == http.HTTPStatus.OK:
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            raise Failed(
                f"onesd's answer is not understood: {error}", hint="are onesd and this command of the same version?"
            ) from error
    try:
        complaint = msgspec.json.decode(answer, type=Complaint)
    except msgspec.DecodeError:
        complaint = Complaint(f"onesd answers {status} without an explanation")
    raise _FAILURES.get(status, Failed)(complaint.error, hint=complaint.hint)
