"""Times as people type them for Slurm's commands: `now-7days`, `today`, `2026-11-30T14:00`, `14:00`, `11/30`."""

import re
from datetime import datetime, time, timedelta

from ones_slurm.model.errors import UsageError

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_RELATIVE = re.compile(r"now(?:(?P<sign>[+-])(?P<count>\d{1,9})(?P<unit>[a-z]*))?", re.ASCII)
_WORDS = {"today": time(0), "midnight": time(0), "noon": time(12)}
_EXAMPLE = "for example now-7days, today, 14:30, 2026-11-30, 2026-11-30T14:30:00 or 11/30"


def parse_when(text: str, now: datetime) -> float:
    """The Unix seconds that `text` means at `now`, in local time as Slurm has it.

    A time of day alone is today's. Raises `UsageError` that shows what would be right.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return datetime.combine(now.date(), _WORDS[word]).timestamp()
    relative = _RELATIVE.fullmatch(word)
    if relative is not None:
        return _relative(text, relative, now)
    for read in (datetime.fromisoformat, lambda day: _time_of_day(day, now), lambda day: _american(day, now)):
        try:
            return read(text.strip()).timestamp()
        except (ValueError, OverflowError):
            continue
    raise UsageError(f"{text!r} is not a time", hint=_EXAMPLE)


def _relative(text: str, match: re.Match[str], now: datetime) -> float:
    if match["sign"] is None:
        return now.timestamp()
    # Slurm takes plain counts for seconds, and any beginning of a unit's name that is not ambiguous.
    name = match["unit"].removesuffix("s") or "second"
    units = [seconds for unit, seconds in _UNITS.items() if unit.startswith(name)]
    if len(units) != 1:
        raise UsageError(f"{text!r} has no unit that is known", hint="seconds, minutes, hours, days or weeks")
    seconds = int(match["count"]) * units[0]
    return now.timestamp() + (seconds if match["sign"] == "+" else -seconds)


def _time_of_day(text: str, now: datetime) -> datetime:
    if ":" not in text:
        raise ValueError(text)
    return datetime.combine(now.date(), time.fromisoformat(text))


def _american(text: str, now: datetime) -> datetime:
    """MM/DD or MM/DD/YY, with -HH:MM[:SS] behind it; without a year the last such day."""
    day, _, clock = text.partition("-")
    parts = day.split("/")
    if len(parts) == 2:
        found = datetime.strptime(f"{day}/{now.year}", "%m/%d/%Y")
        if found > now + timedelta(days=1):
            found = found.replace(year=now.year - 1)
    else:
        found = datetime.strptime(day, "%m/%d/%y")
    return datetime.combine(found.date(), time.fromisoformat(clock)) if clock else found
