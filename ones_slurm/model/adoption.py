"""How far a site lets the co-scheduler go: the rung of the ladder that each job stands on, and when nobody is moved."""

import datetime
import difflib
import enum
import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

Whole = Annotated[int, msgspec.Meta(ge=0)]

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MINUTES = 24 * 60
_WINDOW = re.compile(r"(?:(?P<days>\S+) +)?(?P<first>[^\s-]+)-(?P<last>[^\s-]+)")
_CLOCK = re.compile(r"(\d{2}):(\d{2})", re.ASCII)
_EXAMPLE = '"Mon 08:00-09:00", "Mon-Fri 08:00-09:00" or "23:00-01:00"'


class Rung(enum.StrEnum):
    """OFF: as if the job had no wish. OBSERVE: what would be done is written down for admins. ADVISE: it is shown to
    the user, who acts on it or not. ACT: it is done."""

    OFF = "off"
    OBSERVE = "observe"
    ADVISE = "advise"
    ACT = "act"


# From the most cautious on.
LADDER = (Rung.OFF, Rung.OBSERVE, Rung.ADVISE, Rung.ACT)


class Control(enum.StrEnum):
    """What an administrator has last told the daemon. PAUSE: no new move begins, open ones are carried to their end.
    DRAIN: the same, and nodes that are on loan are given back."""

    RUN = "run"
    PAUSE = "pause"
    DRAIN = "drain"


class Adoption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is moved, how often and when. `mode` is for jobs of which no table speaks; where several do, the most
    cautious word wins. A job that waits in several partitions is held to the most cautious of them.

    `max_moves_per_job_hour`: a job that was moved so often within the last hour stays as it is (0: no limit).
    `never_below_nodes`: no job is made smaller than that, or than it asked for where that is less (0: its wish alone).
    `quiet`: windows in which no move begins, such as "Mon 08:00-09:00", by the clock on the wall of the daemon's host.
    """

    mode: Rung = Rung.ACT
    partitions: dict[str, str] = {}
    accounts: dict[str, str] = {}
    users: dict[str, str] = {}
    max_moves_per_job_hour: Whole = 0
    never_below_nodes: Whole = 0
    quiet: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises `ValueError` that names the wrong part and shows a right one."""
        for table in ("partitions", "accounts", "users"):
            for name, rung in getattr(self, table).items():
                if rung not in LADDER:
                    near = difflib.get_close_matches(rung.lower(), LADDER, 1)
                    meant = f"did you mean {str(near[0])!r}?" if near else f"the rungs are {', '.join(LADDER)}"
                    raise ValueError(f"{table}.{name[:40]!r} = {rung[:40]!r} is no rung of the ladder; {meant}")
        for text in self.quiet:
            parse_window(text)

    def rung(self, partition: str, account: str, user: str) -> tuple[Rung, str]:
        """The rung of a job, and what in the site file puts it there."""
        said = [
            *_said("partition", self.partitions, partition.split(",")),
            *_said("account", self.accounts, [account]),
            *_said("user", self.users, [user]),
        ]
        return min(said, key=lambda one: LADDER.index(one[0])) if said else (self.mode, "the whole site")

    def quiet_window(self, now_s: float, zone: datetime.tzinfo | None = None) -> str:
        """The quiet window that `now_s` lies in; empty for none. `zone` is the host's own where none is given."""
        if not self.quiet:
            return ""
        now = datetime.datetime.fromtimestamp(now_s, zone)
        return next((text for text in self.quiet if parse_window(text).holds(now.weekday(), now.hour, now.minute)), "")


class Window(msgspec.Struct, frozen=True):
    """A time of the day, in minutes, on some days of the week (0 is Monday); one that ends before it begins goes on
    into the next day. It is read off the wall: a change to summer time makes it neither longer nor shorter there."""

    days: frozenset[int]
    first: int
    last: int

    def holds(self, weekday: int, hour: int, minute: int) -> bool:
        """Whether that moment lies in it; its end does not."""
        at = 60 * hour + minute
        if self.first < self.last:
            return weekday in self.days and self.first <= at < self.last
        return (weekday in self.days and at >= self.first) or ((weekday - 1) % 7 in self.days and at < self.last)


def parse_window(text: str) -> Window:
    """Reads "Mon 08:00-09:00"; without a day it is every day. Raises `ValueError` that names the wrong part."""
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise ValueError(f"quiet window {text[:60]!r} is no time of the week; write {_EXAMPLE}")
    first, last = _minutes(match["first"]), _minutes(match["last"])
    if first in (last, _DAY_MINUTES):
        raise ValueError(f"quiet window {text[:60]!r} is empty; write {_EXAMPLE}, or 00:00-24:00 for a whole day")
    return Window(_days(match["days"]), first, last)


def _said(kind: str, table: Mapping[str, str], names: Iterable[str]) -> list[tuple[Rung, str]]:
    return [(Rung(table[name]), f"{kind} {name}") for name in names if name in table]


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    ends = [_day(day) for day in text.split("-", 1)]
    return frozenset((ends[0] + further) % 7 for further in range((ends[-1] - ends[0]) % 7 + 1))


def _day(text: str) -> int:
    if text not in DAYS:
        near = difflib.get_close_matches(text.capitalize(), DAYS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"the days are {', '.join(DAYS)}"
        raise ValueError(f"quiet window: {text[:20]!r} is no day; {meant} (write {_EXAMPLE})")
    return DAYS.index(text)


def _minutes(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    minutes = 60 * int(match[1]) + int(match[2]) if match is not None and int(match[2]) < 60 else _DAY_MINUTES + 1
    if minutes > _DAY_MINUTES:
        raise ValueError(f"quiet window: {text[:20]!r} is no time between 00:00 and 24:00; write {_EXAMPLE}")
    return minutes
