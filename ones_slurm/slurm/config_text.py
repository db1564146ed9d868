"""`scontrol show config`, and lists of options within one of its values."""

import re

_LINE = re.compile(r"^(\S+)\s*= (.*?)\s*$", re.MULTILINE)
_NONE = {"(null)", "N/A", "NONE", "none"}


def read_config(text: str) -> dict[str, str]:
    """Slurm's configuration by key; what is not set is left out."""
    return {key: value for key, value in _LINE.findall(text) if value and value not in _NONE}


def read_options(value: str) -> dict[str, str]:
    """`bf_interval=5,enable_user_top` as a mapping; an option without a value maps to "". Names in lower case."""
    pairs = (option.partition("=") for option in value.split(","))
    return {name.strip().lower(): given.strip() for name, _, given in pairs if name.strip()}


def first_number(value: str) -> float | None:
    """The number in `300 sec`."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", value)
    return float(match[1]) if match else None
