"""Train a residual network on images that are made up, at whatever size the job has.

python resnet.py                                  on a laptop: a thin one on images of 32 pixels
ones-run --ranks-per-node 2 -- python resnet.py   with two processes
sbatch sbatch_templates/resnet.sbatch             on a cluster; on GPUs ResNet-34 on images of 224 pixels

Slower ranks get smaller parts of each batch (`by_speed`), so GPUs of different kinds finish together. Each image is a
pattern of its class under noise, made when it is read: there is nothing to download, and workers have work to do.
"""

import argparse
import dataclasses

import torch
from torch import nn
from torch.utils.data import Dataset

from ones_slurm import elastic

CLASSES = 10


@dataclasses.dataclass
class MadeUp(Dataset[tuple[torch.Tensor, int]]):
    """Image i is always the same one."""

    samples: int
    pixels: int

    def __post_init__(self) -> None:
        chance = torch.Generator().manual_seed(0)
        coarse = torch.randn(CLASSES, 3, 8, 8, generator=chance)
        self.patterns = nn.functional.interpolate(coarse, (self.pixels, self.pixels), mode="bilinear")

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        chance = torch.Generator().manual_seed(index)
        label = index % CLASSES
        return self.patterns[label] + 3 * torch.randn(3, self.pixels, self.pixels, generator=chance), label


class Block(nn.Module):
    """Two convolutions beside a shortcut (He et al. 2015)."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.long = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.short = nn.Identity()
        if stride > 1 or before != width:
            self.short = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.long(x) + self.short(x))


def resnet(width: int, depths: list[int]) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    before = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Block(before, width << stage, 2 if stage and not block else 1))
            before = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description="Train a residual network on made-up images.")
    parser.add_argument("--epochs", type=int, default=10 if on_gpu else 3)
    parser.add_argument("--samples", type=int, default=100_000 if on_gpu else 640)
    parser.add_argument("--pixels", type=int, default=224 if on_gpu else 32)
    parser.add_argument("--width", type=int, default=64 if on_gpu else 8)
    parser.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3] if on_gpu else [1, 1, 1, 1])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.025)
    parser.add_argument("--workers", type=int, default=8 if on_gpu else 0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    model = resnet(options.width, options.depths)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs)
    job = elastic.init(model, optimizer, scheduler)
    data = MadeUp(options.samples, options.pixels)
    loader = job.loader(data, batch_size=options.batch, shuffle=True, by_speed=True, num_workers=options.workers)
    net = job.wrap(model)
    for epoch in job.epochs(options.epochs):
        right = seen = 0
        for x, y in loader:
            images, labels = x.to(job.device), y.to(job.device)
            with torch.autocast(job.device.type, torch.bfloat16, enabled=on_gpu):
                guess = net(images)
                loss = nn.functional.cross_entropy(guess, labels)
            job.step(loss)
            right, seen = right + int((guess.argmax(1) == labels).sum()), seen + len(labels)
        job.report(accuracy=right / max(seen, 1))
        if job.world.rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f} after {job.samples} samples ({job.world.size} ranks)", flush=True)
    if job.world.rank == 0 and job.last_loss is not None:
        print(f"loss {job.last_loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
