"""The same training in plain torch, in one process: what any sequence of worlds has to come out at."""

from typing import Any

import torch

from ones_slurm.elastic import sampler
from ones_slurm.elastic.rates import Ramp, scaled

SAMPLES = 101


def trained(sizes: list[dict[str, Any]], epochs: int) -> dict[str, Any]:
    """Follows a schedule of batch sizes and rates, as a job wrote it down: entries with the step that they begin at."""
    chance = torch.Generator().manual_seed(3)
    x = torch.randn(SAMPLES, 6, generator=chance)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(SAMPLES, 1, generator=chance)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    steps, ramp, seen = 0, Ramp(), 0
    for epoch in range(epochs):
        order = sampler.order_of_epoch(SAMPLES, seed=5, epoch=epoch, shuffle=True)
        position = 0
        while position < SAMPLES:
            for size in (size for size in sizes[seen:] if size["step"] <= steps):
                ramp = ramp.towards(size["lr_scale"], SAMPLES) if steps else Ramp(size["lr_scale"], size["lr_scale"])
                seen += 1
            now = sizes[seen - 1]
            begin, position = next(sampler.steps(SAMPLES, position, now["batch"], now["ranks"]))
            batch = order[begin:position]
            torch.nn.functional.mse_loss(model(x[batch].double()), y[batch].double()).backward()
            with scaled(optimizer, ramp.factor):
                optimizer.step()
            optimizer.zero_grad()
            ramp = ramp.after(position - begin)
            steps += 1
        scheduler.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
