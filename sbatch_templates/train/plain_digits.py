"""Train on scikit-learn's digits with plain torch: this script has never heard of ones-slurm.

It does what any good script does: resumes from a file if there is one, and on USR2 saves to it and exits with 0.
It runs alone, under torchrun, or under any launcher that sets torch's usual variables.
"""

import argparse
import os
import pathlib
import signal

signals: list[int] = []
# Only takes note; the work is done between two steps. Before the slow imports, for a signal may come early.
signal.signal(signal.SIGUSR2, lambda number, _frame: signals.append(number))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def any_asked_to_stop() -> bool:
    """Ranks are signalled at different moments, but they have to stop at the same step."""
    flag = torch.tensor([len(signals)])
    if dist.is_initialized():
        dist.all_reduce(flag)
    return bool(flag.item())


def save(path: pathlib.Path, state: dict[str, object]) -> None:
    """Rank 0 writes beside the old file and then takes its place."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        aside = path.with_suffix(".new")
        with aside.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    if dist.is_initialized():
        dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on scikit-learn's digits with plain torch.")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=64, help="samples a step on each rank")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--resume", type=pathlib.Path, default=pathlib.Path("plain_digits.pt"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = mixed[:1437], mixed[1437:]

    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    epoch, seen = 0, 0
    if options.resume.exists():
        state = torch.load(options.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for group in optimizer.param_groups:
            group["lr"] = options.lr
        epoch, seen = state["epoch"], state["seen"]
        if rank == 0:
            print(f"resumed in epoch {epoch} after {seen} samples of it", flush=True)
    net = DistributedDataParallel(model) if ranks > 1 else model

    step = options.batch_size * ranks
    for epoch in range(epoch, options.epochs):  # noqa: B020 - goes on where the saved epoch was
        order = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))]
        while len(order) - seen >= ranks:
            mine = order[seen : seen + step][rank::ranks]
            nn.functional.cross_entropy(net(images[mine]), labels[mine]).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += step
            if any_asked_to_stop():
                save(
                    options.resume,
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "seen": seen},
                )
                return
        seen = 0
        if rank == 0 and epoch % 10 == 9:
            with torch.no_grad():
                right = (model.eval()(images[test]).argmax(1) == labels[test]).float().mean().item()
            model.train()
            size = f"{ranks} ranks, batch {step}"
            print(f"epoch {epoch}: accuracy {right:.4f} ({size})", flush=True)
    save(
        options.resume,
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": options.epochs, "seen": 0},
    )
    if rank == 0:
        with torch.no_grad():
            print(f"accuracy {(model.eval()(images[test]).argmax(1) == labels[test]).float().mean().item():.4f}")


if __name__ == "__main__":
    main()
