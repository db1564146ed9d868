"""`ones show JOBID` and `ones show config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ones_slurm.cli.table import plain

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command()
@click.argument("what", metavar="JOBID|config")
@click.option("--json", "as_json", is_flag=True, help="as JSON with a version")
@click.pass_obj
def command(site: str | None, what: str, as_json: bool) -> None:
    """Print all about one job, or every setting and where its value comes from."""
    import msgspec

    shown = _config(site) if what == "config" else _job(site, what)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"version": 1, **shown}), indent=1))
        return
    if what == "config":
        click.echo(f"# {shown['file'] or 'no site file: all values are defaults'}")
        lines = [(key, f"{_text(setting['value'])}  ({setting['from']})") for key, setting in shown["settings"].items()]
    else:
        lines = [(key, _text(value)) for key, value in shown.items() if value not in (None, "", [])]
    width = max(len(key) for key, _ in lines)
    for key, value in lines:
        click.echo(f"{key.ljust(width)}  {plain(value)}")


def _job(site: str | None, job_id: str) -> dict[str, Any]:
    import msgspec

    from ones_slurm.daemon.answers import JobRow
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    row = Client(load_site(site).daemon).get(job_path(job_id), JobRow)
    found: dict[str, Any] = msgspec.to_builtins(row)
    return found


def job_path(job_id: str) -> str:
    """Where the daemon answers about a job; raises `UsageError` for what cannot be a job id."""
    import re

    from ones_slurm.model.errors import UsageError

    if not re.fullmatch(r"[0-9]+(_[0-9]+)?", job_id, re.ASCII):
        raise UsageError(f"{job_id!r} is not a job id", hint="a number, or 12_3 for a task of an array")
    return f"/v1/jobs/{job_id}"


def _config(site: str | None) -> dict[str, Any]:
    """Every setting by its dotted name, with `value` and `from` (file or default)."""
    import msgspec
    import toml

    from ones_slurm.model.settings import load_site, site_path

    checked = load_site(site)
    path = site_path(site)
    written = dict(_flat(toml.loads(path.read_text(encoding="utf-8")))) if path else {}
    settings = {
        key: {"value": value, "from": "file" if key in written else "default"}
        for key, value in _flat(msgspec.to_builtins(checked))
    }
    return {"file": str(path) if path else None, "settings": settings}


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)
