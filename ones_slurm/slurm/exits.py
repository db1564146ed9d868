"""How a job ended: `0:9` in text, a raw wait status in the JSON of 22.05, an object in later JSON."""

import re
from typing import Any

import msgspec

_TEXT = re.compile(r"\s*(\d{1,5}):(\d{1,5})\s*", re.ASCII)


class Exit(msgspec.Struct, frozen=True):
    """`status` is the exit code, `signal` the signal that killed it (0: none)."""

    status: int = 0
    signal: int = 0

    @property
    def ok(self) -> bool:
        """Neither an error code nor a signal; success of a job needs its state COMPLETED besides."""
        return self.status == 0 and self.signal == 0


def read_exit(value: Any) -> Exit:
    """Reads any of the shapes; what says nothing reads as status 0, signal 0."""
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        return Exit(int(match[1]), int(match[2])) if match else Exit()
    if isinstance(value, dict):
        signal = value.get("signal")
        ids = signal if isinstance(signal, dict) else {}
        return Exit(_number(value.get("return_code")), _number(ids.get("id", ids.get("signal_id"))))
    # A wait status: the signal in the low seven bits (the eighth tells of a core file), the exit code above them.
    raw = _number(value)
    return Exit((raw >> 8) & 0xFF, raw & 0x7F)


def _number(value: Any) -> int:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return value if isinstance(value, int) and value > 0 else 0
