"""What the pages show is so: site files are read, commands exist with these options, links lead somewhere."""

import re
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from fences import PAGES, ROOT, Block, blocks, blocks_of, calls, pattern, squeezed, targets

from ones_slurm.cli.main import ones
from ones_slurm.daemon.main import onesd
from ones_slurm.model.settings import load_site
from ones_slurm.pipeline import read_blocks

BLOCKS = blocks()
NAMES = frozenset({"ones", "onesd", "ones-run"})


def of_kind(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind in kinds]


def program(name: str) -> click.Command:
    if name == "ones-run":
        pytest.importorskip("mpi4py")
        from ones_slurm.elastic.wrapper_cli import main

        return main
    return {"ones": ones, "onesd": onesd}[name]


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What click complains of in a call; nothing is run."""
    if "--" in words and (inner := [at for at, word in enumerate(words) if word in NAMES and at > words.index("--")]):
        if complaint := parse(words[inner[0] :], monkeypatch):
            return complaint
        words = words[: inner[0]]
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    done = CliRunner().invoke(program(words[0]), words[1:])
    # Files that a reader has and this test has not.
    return "" if done.exit_code == 0 or "does not exist" in done.output else done.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_points_at_is_there(page: Path) -> None:
    assert [named for named, path in targets(page) if not path.exists()] == []


@pytest.mark.parametrize("block", of_kind("toml"), ids=str)
def test_a_toml_block_is_a_site_file_or_says_what_it_is(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "shown.toml"
    file.write_text(block.text)
    if "blocks" in block.words:
        assert read_blocks(file).devices > 0
    else:
        load_site(file)


@pytest.mark.parametrize("block", of_kind("sh"), ids=str)
def test_a_shell_block_is_shell(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("block", of_kind("python"), ids=str)
def test_a_python_block_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", of_kind("sh", "console", "bash", ""), ids=str)
def test_the_commands_exist_with_these_options(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    called = [words for line in block.typed() for words in calls(line, NAMES)]
    assert {" ".join(words): parse(words, monkeypatch) for words in called} == {" ".join(words): "" for words in called}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_running_text_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named without what has to follow them, so only names and options are looked at."""
    said = re.findall(r"`((?:ones|onesd|ones-run) [^`…|]+)`", page.read_text(encoding="utf-8"))
    complaints = {call: parse(call.split(), monkeypatch) for call in said}
    assert {call: said for call, said in complaints.items() if "No such" in said} == {}


def test_a_wrong_option_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    (words,) = calls("cd x && ones lab shell -- ones queue --colour | head", NAMES)
    assert "No such option" in parse(words, monkeypatch)


def test_the_tutorial_has_commands_to_run() -> None:
    shown = blocks_of(ROOT / "docs" / "tutorial.md")
    assert sum(len(block.typed()) for block in shown if block.kind == "console") > 10


def told(page: Path) -> list[str]:
    """What the pages say that the program says: the first column of tables with such a heading."""
    text = page.read_text(encoding="utf-8")
    tables = re.findall(r"^\| (?:what is said|`reason` says) \|.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        said for table in tables for row in table.splitlines() for said in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    ]


@pytest.mark.parametrize("name", ["administration.md", "users.md"])
def test_what_the_program_is_said_to_say_is_in_the_program(name: str) -> None:
    """`…` stands for what differs; the longest piece between two of these has to be one of our own texts."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ones_slurm").rglob("*.py"))
    whole = re.sub(r'"\s*\n\s*f?"', "", source)
    pieces = {said: max((part.strip(" :") for part in said.split("…")), key=len) for said in told(ROOT / "docs" / name)}
    assert len(pieces) >= 10
    others = ("Object contains unknown field", "address already in use", "Name or service not known")
    assert [said for said, piece in pieces.items() if piece not in whole and piece not in others] == []


@pytest.mark.parametrize(
    ("came", "fits"),
    [
        ("A   B\n1 2026 x\nmore\nand more\nend\n", True),
        ("A B\n1 2026 x\nend\n", True),
        ("A B\n1 2026 y\nend\n", False),
        ("A B\n1 2026 x\nend\nand more\n", False),
        ("A B\n1 2026\nx\nend\n", False),
    ],
)
def test_dots_stand_for_what_differs_and_for_nothing_else(came: str, fits: bool) -> None:
    shown = "A  B\n1  ...  x\n...\nend\n"
    assert (pattern(shown).fullmatch(squeezed(came) + "\n") is not None) == fits
