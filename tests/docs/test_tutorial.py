"""The tutorial, typed as it stands, on a lab: its output is what the page shows."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fences import ROOT, Block, blocks_of, pattern, squeezed
from own_lab import need_lab

pytestmark = [pytest.mark.slurm, pytest.mark.torch]

# The page says `ones lab`, whose lab is named `lab`; a machine may have one of that name already.
NAME = f"docs-{os.getpid()}"
PATIENCE_S = 240.0


def read(text: str) -> str:
    """What a command printed, as it would be in a lab named `lab`."""
    return squeezed(text.replace(NAME, "lab")) + "\n"


def steps(block: Block) -> Iterator[tuple[str, str]]:
    """Each command (or ^C) of a block with the output that is shown below it."""
    for part in re.split(r"^(?=\$ |\^C)", block.text, flags=re.MULTILINE):
        if part:
            command, _, shown = part.partition("\n")
            yield command.removeprefix("$ "), shown


class Terminals:
    """The reader's two terminals: commands that end in the first, onesd in the second."""

    def __init__(self, folder: Path) -> None:
        self.env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.log = folder / "second.log"
        self.second: subprocess.Popen[bytes] | None = None

    def typed(self, command: str) -> list[str]:
        return ["bash", "-c", re.sub(r"^ones lab (up|down|shell)", rf"ones lab \1 --name {NAME}", command)]

    def first(self, command: str) -> str:
        done = subprocess.run(
            self.typed(command), cwd=ROOT, env=self.env, text=True, check=False, timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return read(done.stdout) if done.stdout else ""

    def begin(self, command: str) -> None:
        with self.log.open("w") as log:
            self.second = subprocess.Popen(
                self.typed(command), cwd=ROOT, env=self.env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def interrupt(self) -> None:
        if self.second is not None:
            os.killpg(self.second.pid, signal.SIGINT)
            self.second.wait(60)
            self.second = None


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    need_lab()
    pytest.importorskip("sklearn")
    both = Terminals(tmp_path)
    try:
        yield both
    finally:
        both.interrupt()
        both.first("ones lab down")


def test_the_tutorial_is_as_it_stands(terminals: Terminals) -> None:
    for block in blocks_of(ROOT / "docs" / "tutorial.md"):
        if block.kind == "console":
            for command, shown in steps(block):
                follow(terminals, block, command, shown)


def follow(terminals: Terminals, block: Block, command: str, shown: str) -> None:
    """Types a command, and looks until what comes out is what the page shows: once, or where it says so, again."""
    wanted, deadline_s = pattern(shown), time.monotonic() + PATIENCE_S
    in_second = "second" in block.words
    if command == "^C":
        terminals.interrupt()
    elif in_second:
        terminals.begin(command)
    while True:
        came = read(terminals.log.read_text()) if in_second else terminals.first(command)
        if wanted.search(came) if in_second else wanted.fullmatch(came):
            return
        if not (in_second or "again" in block.words) or time.monotonic() > deadline_s:
            pytest.fail(f"{block}: {command}\nshown:\n{shown}\ncame:\n{came}")
        time.sleep(1.0)
