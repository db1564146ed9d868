"""The command `onesd`."""

import asyncio
import contextlib
import errno
import logging
import os
import pathlib
import resource
import signal
import socket
import sys
import urllib.parse

import click
from aiohttp import web

from ones_slurm import __version__
from ones_slurm.daemon.api import BACKLOG, build_app
from ones_slurm.daemon.auth import user_name
from ones_slurm.daemon.notify import tell_systemd
from ones_slurm.daemon.owners import Owners
from ones_slurm.daemon.service import Service
from ones_slurm.model.errors import Failed, OnesError, UsageError
from ones_slurm.model.settings import DEFAULT_PATH, Daemon, load_site

log = logging.getLogger("onesd")

# Ours: a stop lasts no longer than a person likes to wait, nor half of what systemd grants (TimeoutStopSec).
_ENGINE_ENDS_WITHIN_S = 5.0
_REQUESTS_END_WITHIN_S = 2.0
# Ours: more than any Slurm has running jobs with a wrapper, and far from what a kernel minds.
_CONNECTIONS = 65536


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--site", type=click.Path(), help=f"the site file  [default: $ONES_SITE or {DEFAULT_PATH}]")
@click.option("--observe", is_flag=True, help="plan, write down and show, but never act")
@click.option("--user", "own_jobs", is_flag=True, help="manage only the jobs of the user who runs this")
@click.option("--debug", is_flag=True, help="log more, and show the whole traceback of an error")
@click.version_option(__version__)
def onesd(site: str | None, observe: bool, own_jobs: bool, debug: bool) -> None:
    """Keep choosing the size of each elastic job on this cluster, and move the jobs there.

    Logs to standard error. SIGTERM and SIGINT end it; every job keeps its size, and the next start goes on from there.
    """
    _log_to_stderr(debug)
    try:
        settings = load_site(site)
        service = Service(settings, observe=observe, owner=user_name(os.getuid()) if own_jobs else None)
        _allow_many_connections()
        asyncio.new_event_loop().run_until_complete(_serve(service, settings.daemon))
    except OnesError as error:
        if debug:
            raise
        click.echo(f"onesd: {error}", err=True)
        sys.exit(error.exit_code)
    # Not sys.exit: that waits for every thread, and one may hang in a Slurm command for a minute. What matters is in
    # the journal, and its moves are safe to leave at any moment.
    logging.shutdown()
    os._exit(1 if service.failed else 0)


def main() -> None:
    """The console script."""
    onesd(prog_name="onesd")


def _allow_many_connections() -> None:
    """Each job that waits for an order holds one; the usual limit of 1024 is there for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _CONNECTIONS)), hard))


async def _serve(service: Service, daemon: Daemon) -> None:
    """Opens the door, starts the engine, and ends both on a signal or when the engine has failed."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    owners = Owners(service.desk.owner, service.desk.look_up_owner, daemon.admins)
    runner = web.AppRunner(
        build_app(service.desk, owners, daemon), shutdown_timeout=_REQUESTS_END_WITHIN_S, access_log=None
    )
    await runner.setup()
    try:
        where = await _open(runner, daemon)
        service.start(lambda: loop.call_soon_threadsafe(ended.set))
        tell_systemd("READY=1")
        log.info("onesd %s listens on %s, pid %d", __version__, where, os.getpid())
        await ended.wait()
        log.info("stops; every job keeps its size")
        tell_systemd("STOPPING=1")
        service.stop()
    finally:
        await runner.cleanup()
    await asyncio.to_thread(service.join, _ENGINE_ENDS_WITHIN_S)


async def _open(runner: web.AppRunner, daemon: Daemon) -> str:
    """Listens where the site file says, and says where that is."""
    where = await _open_one(runner, daemon)
    if not daemon.page_listen:
        return where
    host, port = _host_and_port("daemon.page_listen", daemon.page_listen)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise Failed(
            f"cannot listen on {daemon.page_listen}: {error.strerror or error}",
            hint="is the port taken? see daemon.page_listen in the site file",
        ) from error
    return f"{where} and {daemon.page_listen}"


async def _open_one(runner: web.AppRunner, daemon: Daemon) -> str:
    try:
        if daemon.auth == "socket":
            _clear_socket(daemon.socket)
            await web.UnixSite(runner, daemon.socket, backlog=BACKLOG).start()
            # Everybody may knock: the kernel says who it is.
            pathlib.Path(daemon.socket).chmod(0o666)
            return daemon.socket
        host, port = _host_and_port("daemon.listen", daemon.listen)
        await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
    except OSError as error:
        where = daemon.socket if daemon.auth == "socket" else daemon.listen
        raise Failed(
            f"cannot listen on {where}: {error.strerror or error}",
            hint="is another onesd running? see daemon.listen and daemon.socket in the site file",
        ) from error
    return daemon.listen


def _clear_socket(path: str) -> None:
    """Removes what a killed daemon has left; a socket that somebody answers at is in use."""
    with socket.socket(socket.AF_UNIX) as knock:
        if knock.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    if pathlib.Path(path).is_socket():
        pathlib.Path(path).unlink()


def _host_and_port(key: str, listen: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(f"//{listen}")
    with contextlib.suppress(ValueError):
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise UsageError(f"{key} = {listen!r} is not a host and a port", hint="for example 127.0.0.1:7077")


class _Lines(logging.Formatter):
    """One line a message, whatever a job has written into it; only tracebacks are longer."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's own name
        record.message = "".join(char if char.isprintable() else " " for char in record.message)
        return super().formatMessage(record)


def _log_to_stderr(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler], force=True)


if __name__ == "__main__":
    main()
