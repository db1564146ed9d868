"""Writes down, step by step, which process trained in which world: `train_and_beat.py FOLDER EPOCHS`."""

import os
import pathlib
import sys
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ones_slurm import elastic


def main() -> None:
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job = elastic.init(model, optimizer)
    loader = job.loader(TensorDataset(torch.randn(1024, 8), torch.randn(1024, 1)), batch_size=64, shuffle=True)
    net = job.wrap(model)
    folder.mkdir(parents=True, exist_ok=True)
    me = f"{os.environ.get('SLURMD_NODENAME', 'here')}-{os.getpid()}"
    with (folder / f"beat-{me}").open("a", buffering=1) as beat:
        for _ in job.epochs(epochs):
            for x, y in loader:
                loss = nn.functional.mse_loss(net(x), y)
                beat.write(f"{time.time():.3f} {job.steps} {job.world.rank} {job.world.size}\n")
                time.sleep(0.05)
                job.step(loss)


if __name__ == "__main__":
    main()
