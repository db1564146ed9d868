"""What `job.step()` costs beside the same lines of plain DistributedDataParallel.

Two gloo ranks on this machine train one network. Blocks of steps take turns, plain and elastic, in one run, so that
whatever else the machine does hits both; the figure is the median of the ratios of neighbouring blocks. The elastic
ones do all that they do in a job: windows agreed on through the store, a look for orders, progress, weights.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
BLOCK_STEPS = 20
BLOCKS = 120
BATCH = 64
GOAL_PERCENT = 1.0


def run() -> list[dict[str, Any]]:
    """Measures on two processes of this machine; takes about half a minute."""
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch) / "result.json"
        command = [
            *(sys.executable, CHECKOUT / "wrappers" / "ones-run", "--ranks-per-node=2", "--dir", f"{scratch}/run"),
            *("--checkpoint-every", "1e9", "--", sys.executable, __file__, "rank", result),
        ]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
        subprocess.run(list(map(str, command)), env=env, check=True)
        plain_s, elastic_s = json.loads(result.read_text())
    percent = (statistics.median(e / p for p, e in zip(plain_s, elastic_s, strict=True)) - 1) * 100
    plain_ms = statistics.median(plain_s) / BLOCK_STEPS * 1e3
    return [
        {
            "name": "job.step() over plain DDP, per training step",
            "value": round(percent, 2),
            "unit": "%",
            "goal": GOAL_PERCENT,
            "better": "lower",
            "note": f"2 gloo ranks, {plain_ms:.2f} ms a plain step, median of {len(plain_s)} pairs of blocks",
        }
    ]


def rank(result: pathlib.Path) -> None:
    """One rank: blocks take turns on one network, one optimizer and one loader."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from ones_slurm import elastic

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps = 2 * BLOCKS * BLOCK_STEPS
    images, labels = torch.randn(BATCH * steps // 10, 1, 8, 8), torch.randint(0, 10, (BATCH * steps // 10,))
    job = elastic.init(model, optimizer)
    loader = job.loader(TensorDataset(images, labels), batch_size=BATCH)
    net = job.wrap(model)

    seconds: tuple[list[float], list[float]] = ([], [])
    done, began_s = 0, time.perf_counter()
    for _ in job.epochs(10):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            if done // BLOCK_STEPS % 2 == 0:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                job.step(loss)
            done += 1
            if done % BLOCK_STEPS == 0:
                now_s = time.perf_counter()
                seconds[(done // BLOCK_STEPS - 1) % 2].append(now_s - began_s)
                began_s = now_s
    if job.world.rank == 0:
        # The first blocks pay for warming up.
        result.write_text(json.dumps([times[5:] for times in seconds]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(pathlib.Path(sys.argv[2]))
    else:
        print(json.dumps(run(), indent=2))
