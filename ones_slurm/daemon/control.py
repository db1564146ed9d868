"""What an administrator has last told the daemon, in a file beside the journal: a restart changes nothing of it."""

import logging
import os
import pathlib
import threading
import time

import msgspec

from ones_slurm.model.adoption import Control
from ones_slurm.model.errors import Failed

log = logging.getLogger("onesd")


class Standing(msgspec.Struct, frozen=True):
    """The word that stands, who gave it, and when (Unix seconds; 0: nobody ever did)."""

    word: Control = Control.RUN
    by: str = ""
    since_s: float = 0.0


class ControlFile:
    """Read by any thread: `standing` is replaced as a whole."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(state_dir) / "control.json"
        self._writing = threading.Lock()
        self.standing = self._read()

    def tell(self, word: Control, by: str) -> Standing:
        """Takes the word down, on disk first. Raises `Failed`, and then the old one stands."""
        with self._writing:
            standing = Standing(word, by, time.time())
            beside = self._path.with_suffix(".new")
            try:
                beside.unlink(missing_ok=True)
                # A new file of our own, so that nothing that lies there already is written through.
                with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(standing))
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(self._path)
            except OSError as error:
                raise Failed(f"cannot write {beside}: {error.strerror}", hint="see state_dir") from error
            self.standing = standing
        log.info("%s tells onesd: %s", by, word)
        return standing

    def word(self) -> Control:
        """The word that stands."""
        return self.standing.word

    def _read(self) -> Standing:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Standing)
        except FileNotFoundError:
            return Standing()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            # Somebody may have paused it there, so the cautious word is taken.
            log.critical("cannot read %s, so no move begins until `ones ctl resume`: %s", self._path, error)
            return Standing(Control.PAUSE, "onesd itself")
