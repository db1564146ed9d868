#!/usr/bin/env python3
"""Writes share/: man pages and shell completions, made from the commands themselves, for a wheel to carry along."""

import os
import subprocess
import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from ones_slurm import __version__
from ones_slurm.cli.main import SUBCOMMANDS, ones
from ones_slurm.daemon.main import onesd
from ones_slurm.elastic.wrapper_cli import main as ones_run

SHARE = Path(__file__).parents[1] / "share"
COMPLETIONS = {
    "bash": "bash-completion/completions/ones",
    "zsh": "zsh/site-functions/_ones",
    "fish": "fish/vendor_completions.d/ones.fish",
}


def man_pages() -> None:
    """One page a command; the date is left out, so that the same commands give the same pages."""
    folder = SHARE / "man" / "man1"
    folder.mkdir(parents=True, exist_ok=True)
    with click.Context(ones) as context:
        for name in SUBCOMMANDS:
            ones.add_command(ones.get_command(context, name), name)
    for name, command in (("ones", ones), ("onesd", onesd), ("ones-run", ones_run)):
        write_man_pages(name, command, version=__version__, target_dir=str(folder), date=f"ones-slurm {__version__}")


def completions() -> None:
    """Click writes them; the shell asks `ones` itself what may follow, so they need no upkeep."""
    for shell, place in COMPLETIONS.items():
        path = SHARE / place
        path.parent.mkdir(parents=True, exist_ok=True)
        program = Path(sys.executable).with_name("ones")
        asked = os.environ | {"_ONES_COMPLETE": f"{shell}_source"}
        path.write_bytes(subprocess.run([program], env=asked, check=True, capture_output=True).stdout)


if __name__ == "__main__":
    man_pages()
    completions()
    print(f"{sum(path.is_file() for path in SHARE.rglob('*'))} files in {SHARE}")
