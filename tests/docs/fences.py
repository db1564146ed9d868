"""Reads the pages for people: their fenced blocks, the commands in these, and what they point at."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")
# House style: a file of the checkout is named by its path, as `docs/report.md`.
_PATH = re.compile(r"`((?:docs|site_configs|sbatch_templates|benchmarks|demo|tools|wrappers)/[\w./-]*)`")


class Block(msgspec.Struct, frozen=True):
    """One fenced block. `kind` is the first word after the fence, `words` the others."""

    page: Path
    line: int
    kind: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def typed(self) -> list[str]:
        """The command lines in it: all of a shell block, those after `$ ` of any other; continued lines are joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.kind == "sh":
            return lines
        return [line.removeprefix("$ ") for line in lines if line.startswith(("$ ", "ones ", "onesd "))]


def blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page)]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        kind, *words = match[2].split() or [""]
        body = "".join(line.removeprefix(match[1]) for line in match[3].splitlines(keepends=True))
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, kind, tuple(words), body))
    return found


def targets(page: Path) -> Iterator[tuple[str, Path]]:
    """What a page points at in the checkout: its words for it, and the file that is meant."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if "://" not in link:
            yield link, page.parent / link
    for path in _PATH.findall(text):
        yield path, ROOT / path


def calls(line: str, names: frozenset[str]) -> Iterator[list[str]]:
    """Each call in a command line of a program among `names`: after `;` too, after `exec`, and after variables."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in (*lexer, ";"):
        if word and set(word) <= set("();<>|&"):
            while words and (words[0] in ("exec", "env") or "=" in words[0]):
                words.pop(0)
            if words and words[0] in names:
                yield words
            words = []
        else:
            words.append(word)


def pattern(shown: str) -> "re.Pattern[str]":
    """`...` on a line of its own stands for any lines, elsewhere for any characters; blanks count as one."""
    parts = []
    for line in shown.splitlines():
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            words = (re.escape(part) for part in squeezed(line).split("..."))
            parts.append("[^\n]*".join(words) + "\n")
    return re.compile("".join(parts))


def squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())
