"""How a browser proves who is looking: a link that somebody got by munge, good once, and then a cookie.

A browser can neither make a munge credential nor open a Unix socket. So `ones page` asks for a link with the proof that
it always gives; whoever opens the link within two minutes gets a cookie in that user's name. The link is good once, so
one that was pasted into a chat or stays in a history lets nobody in. Only digests are kept, and only in memory: after a
restart of the daemon people ask for a new link.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from ones_slurm.daemon.auth import Caller

# Ours: time to copy a link from a terminal, and a working day.
KEY_LASTS_S = 120.0
SESSION_LASTS_S = 12 * 3600.0
# Ours: nobody has more browsers open, and nobody can fill our memory.
_EACH_USER = 32


class _Ticket(msgspec.Struct, frozen=True):
    caller: Caller
    until_s: float


class PageKeys:
    """The links that were given out and the browsers that came in by one. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._keys: OrderedDict[bytes, _Ticket] = OrderedDict()
        self._sessions: OrderedDict[bytes, _Ticket] = OrderedDict()

    def key_for(self, caller: Caller) -> str:
        """A key that lets one browser in as this user."""
        return self._give(self._keys, caller, KEY_LASTS_S)

    def enter(self, key: str) -> str | None:
        """The cookie for a key; None when it was used before, is too old or was never given."""
        ticket = self._keys.pop(_digest(key), None)
        if ticket is None or ticket.until_s <= self._clock():
            return None
        return self._give(self._sessions, ticket.caller, SESSION_LASTS_S)

    def caller(self, cookie: str) -> Caller | None:
        """Whose browser has this cookie; None when nobody's, or no longer."""
        ticket = self._sessions.get(_digest(cookie))
        return ticket.caller if ticket is not None and ticket.until_s > self._clock() else None

    def _give(self, tickets: OrderedDict[bytes, _Ticket], caller: Caller, lasts_s: float) -> str:
        now_s = self._clock()
        for old in [name for name, ticket in tickets.items() if ticket.until_s <= now_s]:
            del tickets[old]
        own = [name for name, ticket in tickets.items() if ticket.caller == caller]
        for oldest in own[: max(len(own) + 1 - _EACH_USER, 0)]:
            del tickets[oldest]
        secret = secrets.token_urlsafe(32)
        tickets[_digest(secret)] = _Ticket(caller, now_s + lasts_s)
        return secret


def _digest(secret: str) -> bytes:
    """What is compared and kept, so that neither timing nor a core file tells a secret."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()
