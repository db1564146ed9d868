"""The training that `bench_rescale` moves about: a stack of linear layers of about `PARAMETERS`, on samples made up.

Each rank writes down when each of its steps was done, so that what happened in between can be read afterwards.
"""

import json
import os
import pathlib
import time

import torch

from ones_slurm import elastic


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """More of them than will be trained on."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((64,), index % 97 / 97)
        return x, x[:1]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wide = int((int(os.environ["PARAMETERS"]) / 8) ** 0.5)
    layers = [torch.nn.Linear(64, wide)]
    for _ in range(8):
        layers += [torch.nn.ReLU(), torch.nn.Linear(wide, wide)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(wide, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    job = elastic.init(model, optimizer)
    loader = job.loader(Samples(), batch_size=16)
    net = job.wrap(model)
    log = pathlib.Path(os.environ["LOG"]) / f"{os.environ.get('SLURMD_NODENAME')}-{os.getpid()}.jsonl"
    with log.open("w") as steps:
        for _ in job.epochs(1):
            for x, y in loader:
                counted = job.step(torch.nn.functional.mse_loss(net(x), y))
                line = [time.time(), job.steps, job.world.size, job.formation, counted]
                print(json.dumps(line), file=steps, flush=True)


if __name__ == "__main__":
    main()
