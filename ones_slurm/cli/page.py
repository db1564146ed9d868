"""`ones page`: a link to the live page of `onesd` for a browser."""

from __future__ import annotations

import click


@click.command()
@click.pass_obj
def command(site: str | None) -> None:
    """Print a link to the live page of onesd: nodes, jobs, the plan and the last decisions.

    The link lets one browser in under your name. It is good once and for two minutes; the browser then stays in for
    twelve hours. From a machine outside of the cluster, forward the port first: `ssh -L 7077:HEAD:7077 LOGIN`, and open
    the link with localhost in place of HEAD.
    """
    from ones_slurm.daemon.answers import PageLink
    from ones_slurm.model.errors import UsageError
    from ones_slurm.model.settings import load_site
    from ones_slurm.peer.client import Client

    daemon = load_site(site).daemon
    where = f"http://{daemon.page_listen}" if daemon.page_listen else daemon.url
    if daemon.auth == "socket" and not daemon.page_listen:
        raise UsageError(
            "this site's onesd listens on a Unix socket only, which no browser can open",
            hint='set daemon.page_listen = "127.0.0.1:7078", or forward the socket: ssh -L 7078:SOCKET HOST',
        )
    click.echo(where + Client(daemon).get("/v1/page", PageLink).path)
