"""Reads an sbatch command line and the directives of a script, as far as `ones submit` has to understand them."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

# Options of sbatch that take no value, or one only after "="; every other option takes the next word (sbatch(1)).
_FLAGS = frozenset(
    shlex.split(
        "--contiguous --exclusive --get-user-env --help --hold --ignore-pbs --nice --no-kill --no-requeue --overcommit "
        "--oversubscribe --parsable --propagate --quiet --reboot --requeue --spread-job --test-only --usage "
        "--use-min-nodes --verbose --version --wait"
    )
)
_SHORT_FLAGS = frozenset("hHkOQsvVW")
_LONG = {"-p": "--partition", "-N": "--nodes", "-G": "--gpus"}
# What sbatch takes from the environment: after the script's directives, before the command line.
_ENVIRONMENT = {
    "SBATCH_COMMENT": "--comment",
    "SBATCH_GPUS_PER_NODE": "--gpus-per-node",
    "SBATCH_GRES": "--gres",
    "SBATCH_PARTITION": "--partition",
}


def options(words: Sequence[str]) -> Iterator[tuple[str, str | None, int]]:
    """Each option with its value and the number of words that it takes, up to the script's name.

    Short names that `ones submit` cares for come back as long ones. The words after the last are the script and its
    arguments; a `--` before them is none of the options.
    """
    place = 0
    while place < len(words):
        word = words[place]
        if word in ("-", "--") or not word.startswith("-"):
            return
        if word.startswith("--"):
            name, sign, value = word.partition("=")
            takes_next = not sign and name not in _FLAGS
        else:
            name, value = word[:2], word[2:].removeprefix("=")
            sign, takes_next = word[2:], len(word) == 2 and word[1] not in _SHORT_FLAGS
        if takes_next:
            value = words[place + 1] if place + 1 < len(words) else ""
        yield _LONG.get(name, name), value if sign or takes_next else None, 1 + takes_next
        place += 1 + takes_next


def divide(words: Sequence[str], mine: Iterable[str], my_flags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Our own options, wherever they stand before the script, and all the rest for sbatch.

    `mine` take a value, `my_flags` none. What comes after the script's name is the script's.
    """
    mine, my_flags = frozenset(mine), frozenset(my_flags)
    ours: list[str] = []
    theirs: list[str] = []
    place = 0
    while place < len(words):
        found = next(options(words[place:]), None)
        if found is None:
            break
        spelled = words[place].partition("=")[0]
        count = 1 if spelled in my_flags else found[2]
        (ours if spelled in mine or spelled in my_flags else theirs).extend(words[place : place + count])
        place += count
    return ours, theirs + list(words[place:])


def without(words: Sequence[str], name: str) -> list[str]:
    """The command line without an option that goes another way."""
    kept: list[str] = []
    place = 0
    for found, _, count in options(words):
        if found != name:
            kept.extend(words[place : place + count])
        place += count
    return kept + list(words[place:])


def script_of(words: Sequence[str]) -> str | None:
    """The script's name, None where sbatch would read standard input."""
    rest = list(words[sum(count for _, _, count in options(words)) :])
    if rest and rest[0] == "--":
        rest = rest[1:]
    return rest[0] if rest else None


def request(words: Sequence[str], script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What is asked for in the end, by long option name: directives, then the environment, then the command line."""
    asked = {name: value or "" for line in _directives(script) for name, value, _ in options(line)}
    asked |= {name: environment[key] for key, name in _ENVIRONMENT.items() if key in environment}
    return asked | {name: value or "" for name, value, _ in options(words)}


def _directives(script: str) -> Iterator[list[str]]:
    """The `#SBATCH` lines, which end at the first command."""
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            return
        if re.match(r"#SBATCH\s", line):
            try:
                yield shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                continue  # an open quote: sbatch will say so


def gpus_per_node(asked: Mapping[str, str]) -> int | None:
    """From `--gpus-per-node=[type:]N` or `--gres=gpu[:type][:N]`; None where neither is given."""
    if "--gpus-per-node" in asked:
        number = asked["--gpus-per-node"].rpartition(":")[2]
        return int(number) if number.isdecimal() else None
    for word in asked.get("--gres", "").removeprefix("gres:").split(","):
        kind, *rest = re.split(r"[:/]", word)
        if kind == "gpu":
            return int(rest[-1]) if rest and rest[-1].isdecimal() else 1
    return None
