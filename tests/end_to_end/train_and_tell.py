"""A training that writes down every sample it was shown and every loss.

`train_and_tell.py FOLDER SEED EPOCHS [PAUSE_S [SAMPLE_S]]`: a pause after each step lets it last as long on every
machine. With SAMPLE_S it is longer by so much a sample of this rank, as if each rank had a device of its own.
"""

import os
import pathlib
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset

from ones_slurm import elastic


class Digits(Dataset):
    """1,437 images with their numbers, so that it can be told which were seen."""

    def __init__(self) -> None:
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32).flatten(1)[:1437] / 16
        self.labels = torch.tensor(digits.target)[:1437]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index], index


def main() -> None:
    folder, seed, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    pause_s = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    sample_s = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    # No BatchNorm: its statistics are those of a rank, so they differ with the number of ranks in any training.
    model = nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    job = elastic.init(model, optimizer, seed=seed)
    loader = job.loader(Digits(), batch_size=64, shuffle=True)
    net = job.wrap(model)
    folder.mkdir(parents=True, exist_ok=True)
    me = f"{os.environ.get('SLURM_RESTART_COUNT', '0')}-{os.environ.get('ONES_GENERATION', '0')}-{job.world.rank}"
    with (folder / f"told-{me}.txt").open("a", buffering=1) as told:
        for epoch in job.epochs(epochs):
            for x, y, indices in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                # Told before the step, for the step may be the last of this process.
                told.write(f"{epoch} {job.steps} {loss.item():.9f} {' '.join(map(str, indices.tolist()))}\n")
                time.sleep(pause_s + sample_s * len(x))
                job.step(loss)
    if job.world.rank == 0:
        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32).flatten(1)[1437:] / 16
        model.eval()
        right = (model(images).argmax(1) == torch.tensor(data.target)[1437:]).float().mean().item()
        (folder / "accuracy").write_text(str(right))


if __name__ == "__main__":
    main()
