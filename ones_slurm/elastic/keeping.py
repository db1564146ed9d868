"""The wrapper's side of the keeper: starts it, tells it who died, ends it. Loads no torch."""

import contextlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import msgspec

from ones_slurm.elastic.rank import listen

_PACKAGE = pathlib.Path(__file__).resolve().parents[2]
_END_WITHIN_S = 5.0


def has_torch() -> bool:
    """Whether this Python can run a keeper. Without one a change of size is a restart, and rank 0 holds the store."""
    return importlib.util.find_spec("torch") is not None


class Keeper:
    """The process that holds the store of one run; `address` and `port` are where."""

    def __init__(self, interface: str = "") -> None:
        listening, self.address, self.port = listen(interface)
        with listening:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ones_slurm.elastic.keeper", str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                process_group=0,
                # torch warns of each client whose host has no name.
                env={
                    **os.environ,
                    "TORCH_CPP_LOG_LEVEL": "ERROR",
                    "PYTHONPATH": f"{_PACKAGE}:{os.environ.get('PYTHONPATH', '')}",
                },
            )

    def died(self, name: str, how: str) -> None:
        """This member's process has ended as it should not."""
        self._tell({"type": "Death", "name": name, "how": how})

    def dismiss(self, team: str) -> None:
        """Those of this team who wait to come in may go."""
        self._tell({"type": "Dismissal", "team": team})

    def close(self) -> None:
        """The run is over."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, what: dict[str, str]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has gone, or the run is over
            self._process.stdin.write(msgspec.json.encode(what) + b"\n")
            self._process.stdin.flush()
