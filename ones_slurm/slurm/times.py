"""Slurm's durations, time limits and dates, in text.

Words (`UNLIMITED`, `Partition_Limit`, `INVALID`, `N/A`, `None`, `Unknown`, whatever a release adds) read as None: never
as 0, and never as an error.
"""

import datetime
import functools
import math
import re

_DURATION = re.compile(r"(?:(?P<days>\d{1,6})-)?(?P<fields>\d{1,9}(?::\d{1,9}){0,2})(?P<part>\.\d{1,9})?", re.ASCII)
_EPOCH = re.compile(r"\d{1,11}", re.ASCII)
# From the day on, and from the last field back: `D-HH[:MM[:SS]]` and `[[HH:]MM:]SS`.
_AFTER_DAYS = (3600, 60, 1)
_WITHOUT_DAYS = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}


def duration_s(text: str | None) -> float | None:
    """Seconds in `[D-]HH:MM:SS`, `D-HH`, `D-HH:MM`, `MM:SS`, `MM:SS.mmm`, or a plain number of minutes (as in `-t`)."""
    match = _DURATION.fullmatch((text or "").strip())
    if match is None:
        return None
    fields = [int(field) for field in match["fields"].split(":")]
    weights = _AFTER_DAYS if match["days"] else _WITHOUT_DAYS[len(fields)]
    seconds = sum(field * weight for field, weight in zip(fields, weights, strict=False))
    return 86400 * int(match["days"] or 0) + seconds + float(match["part"] or 0)


def time_limit_s(text: str | None) -> float | None:
    """A time limit in seconds; None without a limit, which is also what Slurm means by a limit of 0."""
    return duration_s(text) or None


def time_limit_minutes(remaining_s: float) -> int:
    """What to write into `TimeLimit=` for a job that may run this long: at least 1, because 0 means no limit."""
    return max(1, math.floor(remaining_s / 60))


def date_s(text: str | None) -> float | None:
    """Unix seconds of a date: a number (`SLURM_TIME_FORMAT=%s`), or local time as `2026-11-30T14:32:39`."""
    if text is not None and len(text) == 19 and text[16] == ":" and text.isascii():
        minute, second = text[15], text[17:]
        if minute.isdecimal() and second.isdecimal() and second < "60":
            begin_s = _ten_minutes_s(text[:15])
            return None if begin_s is None else begin_s + 60 * int(minute) + int(second)
    date = (text or "").strip()
    return (float(date) or None) if _EPOCH.fullmatch(date) else _iso_s(date)


@functools.lru_cache(maxsize=16384)
def _ten_minutes_s(text: str) -> float | None:
    """When the ten minutes begin that `2026-11-30T14:3` names. Cached, for the rows of accounting are many; clocks are
    put forward and back by whole tens of minutes."""
    return _iso_s(f"{text}0:00")


def _iso_s(date: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(date).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
