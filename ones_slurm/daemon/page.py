"""The live page at `/`: what the daemon sees, plans and has decided, for people with a browser. It only reads.

The server fills in the whole page, so it works without JavaScript; with it, the same HTML arrives anew over server-sent
events whenever there is a new tick. Everybody sees what Slurm would show them (PrivateData). Nothing is loaded from
anywhere else, and the Content-Security-Policy forbids it as well as any script in the page itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
from aiohttp import web
from markupsafe import Markup

from ones_slurm.daemon.answers import PageLink
from ones_slurm.daemon.auth import Authenticate, Caller, NoCredential
from ones_slurm.daemon.desk import Desk
from ones_slurm.daemon.owners import Owners
from ones_slurm.daemon.page_keys import KEY_LASTS_S, SESSION_LASTS_S, PageKeys
from ones_slurm.daemon.page_view import MOST_DECIDED, Reader, moment, page_view
from ones_slurm.engine.loop import Latest
from ones_slurm.model.errors import NotAllowed, Unreachable
from ones_slurm.report.page_templates import source, templates
from ones_slurm.report.shown import show_types

COOKIE = "ones_page"
# Ours: a new tick is on the page within a second, and a proxy on the way does not take the silence for an end.
_LOOK_EVERY_S = 1.0
_ALIVE_EVERY_S = 15.0
MOST_STREAMS = 256
# Ours: so many moves and words are read for all readers at once; who sees own jobs alone finds theirs among these.
_DECIDED_READ = 10 * MOST_DECIDED

TEMPLATES = templates("ones_slurm.daemon")
TEMPLATES.filters |= {"moment": moment, "types": show_types}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Page:
    """The handlers. `authenticate` is the API's own way, for those who come by munge or over the Unix socket."""

    def __init__(self, desk: Desk, owners: Owners, authenticate: Authenticate) -> None:
        self._desk, self._owners, self._authenticate = desk, owners, authenticate
        self._keys = PageKeys()
        self._stopping = asyncio.Event()
        self._bodies: dict[Reader, tuple[Latest, str]] = {}
        self._files = {
            "page.js": (source(TEMPLATES, "page.js"), "text/javascript"),
            "page.css": (source(TEMPLATES, "style.css") + source(TEMPLATES, "page.css"), "text/css"),
        }
        self.streams = 0

    def routes(self) -> list[web.RouteDef]:
        """What belongs to the page, but for the link, which is the API's."""
        return [
            web.get("/", self.index),
            web.get("/enter", self.enter),
            web.get("/events", self.events),
            web.get("/{name:page\\.(?:js|css)}", self.file),
        ]

    def stop(self) -> None:
        """Ends every stream."""
        self._stopping.set()

    async def link(self, _: web.Request, caller: Caller) -> web.Response:
        """A link that lets one browser in as the caller."""
        link = PageLink(path=f"/enter?key={quote(self._keys.key_for(caller))}", valid_s=KEY_LASTS_S)
        return web.Response(
            body=msgspec.json.encode(link), content_type="application/json", headers={"Cache-Control": "no-store"}
        )

    async def enter(self, request: web.Request) -> web.StreamResponse:
        """Changes a key for a cookie and shows the page."""
        cookie = self._keys.enter(request.query.get("key", ""))
        if cookie is None:
            return self._door(403, "This link was used before or is older than two minutes.")
        answer = web.Response(status=303, headers={**_HEADERS, "Location": "/"})
        answer.set_cookie(COOKIE, cookie, max_age=int(SESSION_LASTS_S), httponly=True, samesite="Lax", path="/")
        return answer

    async def index(self, request: web.Request) -> web.StreamResponse:
        """The page as it stands."""
        try:
            reader = self._reader(await self._caller(request))
        except NoCredential:
            return self._door(401, "This page shows jobs, so it must know who is looking.")
        except NotAllowed as error:
            return self._door(403, error.message)
        _, body = await self._body(reader)
        html = TEMPLATES.get_template("page.html").render(site=self._desk.site_name, body=Markup(body), every_s=30)
        return web.Response(text=html, content_type="text/html", headers=_HEADERS)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The same content again whenever the daemon has looked or planned anew."""
        caller = await self._caller(request)
        if self.streams >= MOST_STREAMS:
            raise Unreachable(f"{MOST_STREAMS} browsers are watching already", hint="reload later; it is up to date")
        answer = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        self.streams += 1
        try:
            async for message in self._messages(request, self._reader(caller)):
                await answer.write(message.encode())
        except ConnectionError:
            pass  # the reader has gone
        finally:
            self.streams -= 1
        return answer

    async def file(self, request: web.Request) -> web.Response:
        """The script and the style sheet; they hold nothing of anybody."""
        text, kind = self._files[request.match_info["name"]]
        return web.Response(text=text, content_type=kind, headers={**_HEADERS, "Cache-Control": "no-cache"})

    async def _messages(self, request: web.Request, reader: Reader) -> AsyncIterator[str]:
        cookie = request.cookies.get(COOKIE, "")
        by_cookie = self._keys.caller(cookie) is not None
        shown, silent_s = None, 0.0
        while not self._stopping.is_set():
            if by_cookie and self._keys.caller(cookie) is None:
                yield "event: over\ndata: ask for a new link: ones page\n\n"
                return
            if self._desk.latest() is not shown:
                shown, body = await self._body(reader)
                lines = "".join(f"data: {line}\n" for line in body.splitlines())
                yield f"event: state\n{lines}\n"
                silent_s = 0.0
            elif silent_s >= _ALIVE_EVERY_S:
                yield ": still here\n\n"
                silent_s = 0.0
            silent_s += _LOOK_EVERY_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_EVERY_S)

    async def _caller(self, request: web.Request) -> Caller:
        known = self._keys.caller(request.cookies.get(COOKIE, ""))
        return known if known is not None else await self._authenticate(request)

    def _reader(self, caller: Caller) -> Reader:
        """What Slurm would show this user."""
        private, everything = self._desk.private_data, self._owners.may_see_all(caller)
        return Reader(
            own=None if everything or "jobs" not in private else caller.name,
            nodes=everything or "nodes" not in private,
        )

    async def _body(self, reader: Reader) -> tuple[Latest, str]:
        """The changing part for one kind of reader, made once a tick in a thread of its own."""
        latest = self._desk.latest()
        made = self._bodies.get(reader)
        if made is None or made[0] is not latest:
            self._bodies = {other: kept for other, kept in self._bodies.items() if kept[0] is latest}
            made = (latest, await asyncio.to_thread(self._fill_in, latest, reader))
            self._bodies[reader] = made
        return made

    def _fill_in(self, latest: Latest, reader: Reader) -> str:
        decided = self._desk.decided(_DECIDED_READ)
        view = page_view(latest, self._desk.queue().jobs, self._desk.state(), decided, reader)
        return TEMPLATES.get_template("page_body.html").render(view=view)

    def _door(self, status: int, why: str) -> web.Response:
        html = TEMPLATES.get_template("page_door.html").render(site=self._desk.site_name, why=why)
        return web.Response(status=status, text=html, content_type="text/html", headers=_HEADERS)
