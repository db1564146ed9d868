"""Numbers in Slurm's JSON: plain or null up to 22.05, `{set, infinite, number}` later."""

import msgspec


class Wrapped(msgspec.Struct):
    """A number of the later releases. Unlimited is `set` false with `infinite` true."""

    set: bool = False
    infinite: bool = False
    number: float = 0


Number = int | float | Wrapped | None


def number(value: Number) -> float | None:
    """The number in either shape; None where it is unset, unlimited or null."""
    if isinstance(value, Wrapped):
        return float(value.number) if value.set and not value.infinite else None
    return None if value is None else float(value)


def whole(value: Number) -> int:
    """The same as a whole number, 0 where there is none."""
    return int(number(value) or 0)
