"""Train a small GPT as a pipeline behind an embedding that is spread over all devices, at whatever size the job has.

python pipeline_gpt.py                                 in one piece, on a laptop
ones-run --ranks-per-node 4 -- python pipeline_gpt.py  a pipeline of four processes
sbatch sbatch_templates/pipeline.sbatch                on a cluster; every further node is one more replica

The text is Python's own argument parser; the model learns to spell it, letter by letter.
"""

import argparse
import inspect
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ones_slurm import elastic
from ones_slurm.pipeline import Block, Placement, by_name, read_blocks
from ones_slurm.pipeline.model import PipelineModel

DEVICES, WIDTH, HEADS, LENGTH, LETTERS = 4, 32, 4, 32, 128
MICRO_BATCH = 8


class EmbeddingShare(nn.Module):
    """Every fourth letter's embedding; the shares of all devices add up to the embedding."""

    def __init__(self, share: int) -> None:
        super().__init__()
        self.share = share
        self.table = nn.Embedding(LETTERS // DEVICES, WIDTH)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        letters = batch["letters"]
        mine = (letters % DEVICES == self.share).unsqueeze(-1)
        return self.table(letters // DEVICES) * mine


class Stage(nn.Module):
    """One transformer layer; the first adds positions, the last gives the loss."""

    def __init__(self, *, first: bool, last: bool) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH)) if first else None
        self.head = nn.Linear(WIDTH, LETTERS) if last else None
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, batch: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        x = x if self.positions is None else x + self.positions
        x = self.layer(x, src_mask=self.mask, is_causal=True)
        if self.head is None:
            return x
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch["next"].flatten())


def make(block: Block, share: int) -> nn.Module:
    if block.name == "E":
        return EmbeddingShare(share)
    return Stage(first=block.name == "F0", last=block.name == f"F{DEVICES - 1}")


def build(device: torch.device) -> tuple[Placement, dict[str, nn.Module], dict[str, torch.Tensor]]:
    """For `ones pipeline profile pipeline_gpt.py:build`."""
    placement = by_name(f"M{DEVICES}")
    model = PipelineModel(placement, make).to(device)
    modules = {name: module for d in reversed(range(DEVICES)) for name, module in model.on(d).items()}
    return (
        placement,
        modules,
        {key: torch.zeros(4, LENGTH, dtype=torch.long, device=device) for key in ("letters", "next")},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small GPT as a pipeline.")
    parser.add_argument(
        "--pipeline", type=Path, default=os.environ.get("ONES_PIPELINE"), help="the blocks: a placement or a plan"
    )
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument(
        "--sample-ms", type=float, default=0.0, help="be as slow as a replica that takes so long for a sample"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    text = torch.tensor([ord(c) % LETTERS for c in inspect.getsource(argparse)])
    starts = range(0, options.samples * LENGTH, LENGTH)
    letters = torch.stack([text[s : s + LENGTH] for s in starts])
    following = torch.stack([text[s + 1 : s + LENGTH + 1] for s in starts])

    placement = read_blocks(options.pipeline) if options.pipeline else by_name(f"M{DEVICES}").with_memory(5)
    model = PipelineModel(placement, make)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    job = elastic.init_pipeline(model, optimizer, micro_batch=MICRO_BATCH)
    loader = job.loader(TensorDataset(letters, following), batch_size=options.batch, shuffle=True)
    for epoch in job.epochs(options.epochs):
        losses = []
        for x, y in loader:
            pieces = job.split(x.to(job.device), y.to(job.device))
            losses.append(job.train([{"letters": a, "next": b} for a, b in pieces]))
            time.sleep(options.sample_ms * len(x) / 1000)
        mean = sum(losses) / max(len(losses), 1)
        job.report(loss=mean)
        if job.world.rank == 0:
            print(f"epoch {epoch}: loss {mean:.6f} on {job.world.size} ranks", flush=True)


if __name__ == "__main__":
    main()
