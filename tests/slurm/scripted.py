"""A runner for commands whose answers are written down beforehand."""

import subprocess
from collections.abc import Callable, Mapping, Sequence


class Scripted:
    """Answers a command by the first entry whose words all occur in it; `asked` keeps what was asked.

    An answer is the text to print, an error (said on stderr with exit code 1) as `Says`, an exception to raise, a
    function of the command, or a list of these, one for each time it is asked.
    """

    def __init__(self, answers: Mapping[str, object]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []

    def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float
    ) -> "subprocess.CompletedProcess[str]":
        command = " ".join(argv)
        self.asked.append(command)
        key = next(key for key in self.answers if all(word in command for word in key.split()))
        answer = self.answers[key]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Callable):
            answer = answer(argv)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Says):
            return subprocess.CompletedProcess(argv, 1, "", answer + "\n")
        return subprocess.CompletedProcess(argv, 0, answer, "")


class Says(str):
    """What a failing command says."""

    __slots__ = ()
