"""Training under a framework in processes of their own: importing it alone may take a minute on a busy machine."""

import subprocess
import time
from collections.abc import Sequence

from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder, Word
from ones_slurm.model.wire import Order

_WITHIN_S = 240


def run_to_its_end(command: Sequence[object], env: dict[str, str]) -> None:
    """Runs a generation that finishes."""
    done = subprocess.run(
        list(map(str, command)), env=env, capture_output=True, text=True, timeout=_WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_until_it_leaves(command: Sequence[object], env: dict[str, str], folder: RunFolder, step: int) -> Word:
    """Runs a generation, orders it to leave once it has made so many steps, and returns rank 0's last word."""
    folder.begin_generation()
    process = subprocess.Popen(
        list(map(str, command)), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        deadline = time.monotonic() + _WITHIN_S
        while (word := folder.read_word()) is None or word.generation != 0 or word.progress.step < step:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        folder.write_order(Order(generation=1, kind="shrink", go=False, batch=0))
        said, _ = process.communicate(timeout=_WITHIN_S)
    finally:
        process.kill()
    assert process.returncode == LEFT_CODE, said
    word = folder.read_word()
    assert word is not None
    assert word.left
    return word
