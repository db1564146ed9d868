"""`ones version`."""

import click


@click.command()
def command() -> None:
    """Print the version."""
    from ones_slurm import __version__

    click.echo(f"ones-slurm {__version__}")
