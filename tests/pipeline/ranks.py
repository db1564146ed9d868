"""Some processes with gloo between them, each running one function of this directory; what they return comes back."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

RUN = """
import importlib, os, pickle, sys
import torch
import torch.distributed as dist
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
function = getattr(importlib.import_module(sys.argv[2]), sys.argv[3])
dist.init_process_group("gloo")
answer = function(*pickle.loads(bytes.fromhex(sys.argv[4])))
with open(sys.argv[5], "wb") as file:
    pickle.dump(answer, file)
dist.barrier()
dist.destroy_process_group()
"""


def on_ranks(count: int, module: str, function: str, *arguments: Any, timeout_s: float = 300) -> list[Any]:
    """Call a function on every rank of a world; a rank that fails fails the test with its traceback."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        answers = [Path(folder) / f"{rank}.pickle" for rank in range(count)]
        ranks = []
        for rank, answer in enumerate(answers):
            environment = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(ROOT),
            }
            argv = [sys.executable, "-c", RUN, str(Path(__file__).parent), module, function]
            argv += [pickle.dumps(arguments).hex(), str(answer)]
            ranks.append(
                subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        try:
            outputs = [process.communicate(timeout=timeout_s)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        failed = [text for process, text in zip(ranks, outputs, strict=True) if process.returncode]
        assert not failed, "\n".join(failed)
        return [pickle.loads(answer.read_bytes()) for answer in answers]
