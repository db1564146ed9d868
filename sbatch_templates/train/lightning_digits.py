"""Train on scikit-learn's digits with Lightning, at whatever size the job has.

python lightning_digits.py                       on a laptop
sbatch sbatch_templates/lightning.sbatch         on a cluster

Three lines are ours: the callback, the options that it gives to the Trainer, and its loader.
"""

import argparse

import lightning.pytorch as L  # noqa: N812 - as Lightning's own examples have it
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ones_slurm.elastic.lightning import ElasticCallback


class Digits(L.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10),
        )  # fmt: skip

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        images, labels = batch
        right = (self.net(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on scikit-learn's digits with Lightning.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.002)
    options = parser.parse_args()
    torch.set_num_threads(1)
    L.seed_everything(1)

    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = (TensorDataset(images[part], labels[part]) for part in (mixed[:1437], mixed[1437:]))

    elastic = ElasticCallback(batch_size=64, seed=1)
    trainer = L.Trainer(
        max_epochs=options.epochs,
        callbacks=[elastic],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        **elastic.trainer_options(),
    )
    trainer.fit(
        Digits(options.lr),
        elastic.loader(train, shuffle=True),
        DataLoader(test, batch_size=60),
        ckpt_path=elastic.checkpoint(),
    )
    if elastic.world.rank == 0:
        print(f"accuracy {trainer.callback_metrics['accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
