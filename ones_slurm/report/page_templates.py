"""How our pages are filled in: every value is escaped, and nothing that a user typed can steer what is shown."""

from typing import Any

import jinja2
from markupsafe import Markup


def printable(text: str) -> str:
    """Job names and reasons are untrusted: no control character, and none that turns the direction of writing."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def templates(package: str) -> jinja2.Environment:
    """The templates of a room, with those of this one (the style sheet) behind them."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("ones_slurm.report")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )


def source(environment: jinja2.Environment, name: str) -> str:
    """One of these files as it is."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _shown(value: Any) -> Any:
    """Only what we have marked as our own HTML passes as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
