"""How figures are printed, the same wherever they are printed."""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction

_SECONDS_PER_DAY = 86400


def show_time(seconds: int | None) -> str:
    """Local time as `sacct` prints it."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds).isoformat(timespec="seconds")


def show_duration(seconds: float | Fraction | None) -> str:
    """[D-]HH:MM:SS as `sacct` prints it."""
    if seconds is None:
        return "-"
    days, rest = divmod(round(seconds), _SECONDS_PER_DAY)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def show_hours(hours: Fraction | float) -> str:
    """GPU-hours to the thousandth, which is 3.6 GPU-seconds."""
    return f"{float(hours):.3f}"


def show_share(share: float | None) -> str:
    """Per cent."""
    return "-" if share is None else f"{100 * share:.1f}%"


def show_ratio(ratio: float | None) -> str:
    """A plain number."""
    return "-" if ratio is None else f"{ratio:.2f}"


def show(value: object) -> str:
    """Anything else; `-` where there is nothing to say."""
    return "-" if value is None or value == "" else str(value)


def show_count(number: int, what: str) -> str:
    """With what is counted: `1 move`, `3 moves`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def show_types(gpus: Mapping[str, int]) -> str:
    """The types of some GPUs: `a100`, or `a100:2,v100:4` where there are several; `-` for none that is known."""
    if len(gpus) == 1:
        return next(iter(gpus))
    return ",".join(f"{kind}:{count}" for kind, count in gpus.items()) or "-"
