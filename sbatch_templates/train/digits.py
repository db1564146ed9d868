"""Train a small convolutional network on scikit-learn's handwritten digits, at whatever size the job has.

python digits.py                                 on a laptop
ones-run --ranks-per-node 2 -- python digits.py  with two processes
sbatch sbatch_templates/ddp.sbatch               on a cluster
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from ones_slurm import elastic


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Each image moved by up to one pixel, differently each time it is seen."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    corners = torch.randint(0, 3, (len(images), 2))
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, corners.tolist(), strict=True)])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    hits = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sample-ms", type=float, default=0.0, help="be as slow as a device that takes so long for a sample"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = mixed[:1437], mixed[1437:]

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs)
    job = elastic.init(model, optimizer, scheduler, seed=options.seed)
    images, labels = images.to(job.device), labels.to(job.device)

    loader = job.loader(TensorDataset(images[train], labels[train]), batch_size=64, shuffle=True)
    net = job.wrap(model)
    for epoch in job.epochs(options.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(shifted(x)), y)
            time.sleep(options.sample_ms * len(x) / 1000)
            job.step(loss)
        right = accuracy(model, images[test], labels[test])
        job.report(accuracy=right)
        if job.world.rank == 0:
            size = f"{job.world.size} ranks, batch {loader.batch}"
            print(f"epoch {epoch}: accuracy {right:.4f} after {job.samples} samples ({size})", flush=True)
    if job.world.rank == 0:
        print(f"accuracy {accuracy(model, images[test], labels[test]):.4f}", flush=True)


if __name__ == "__main__":
    main()
