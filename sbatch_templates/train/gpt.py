"""Train a small GPT, letter by letter, on Python's own reference manual, at whatever size the job has.

python gpt.py                                  on a laptop: two small layers
ones-run --ranks-per-node 2 -- python gpt.py   with two processes
sbatch sbatch_templates/gpt.sbatch             on a cluster; on GPUs the layers are those of the smallest GPT-2

At most `--fits` sequences go through a rank at once. A larger part of a batch comes in several shares, of which the
loop need not know.
"""

import argparse
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ones_slurm import elastic

LETTERS, LENGTH = 128, 64


class GPT(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.positions = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, LETTERS, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.letters(letters) + self.positions, mask=self.mask, is_causal=True))


def sequences(count: int | None) -> TensorDataset:
    """The manual in pieces, and the same one letter on."""
    text = torch.tensor([min(ord(letter), LETTERS - 1) for letter in "\n".join(topics.values())])
    pieces = (len(text) - 1) // LENGTH
    now, following = (text[at : at + pieces * LENGTH].view(pieces, LENGTH)[:count] for at in (0, 1))
    return TensorDataset(now, following)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description="Train a small GPT on Python's reference manual.")
    parser.add_argument("--epochs", type=int, default=20 if on_gpu else 3)
    parser.add_argument("--samples", type=int, default=None if on_gpu else 1024, help="sequences; all of them: 11,000")
    parser.add_argument("--width", type=int, default=768 if on_gpu else 64)
    parser.add_argument("--layers", type=int, default=12 if on_gpu else 2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--fits", type=int, default=64 if on_gpu else 16, help="sequences that fit on a rank at once")
    parser.add_argument("--lr", type=float, default=3e-4 if on_gpu else 3e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    model = GPT(options.width, max(options.width // 64, 2), options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    job = elastic.init(model, optimizer)
    data = sequences(options.samples)
    loader = job.loader(data, batch_size=options.batch, shuffle=True, max_local_batch=options.fits)
    net = job.wrap(model)
    for epoch in job.epochs(options.epochs):
        for letters, following in loader:
            with torch.autocast(job.device.type, torch.bfloat16, enabled=on_gpu):
                guess = net(letters.to(job.device))
                loss = nn.functional.cross_entropy(guess.flatten(0, 1), following.to(job.device).flatten())
            job.step(loss)
        job.report(loss=loss)
        if job.world.rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f} after {job.samples} samples ({job.world.size} ranks)", flush=True)
    if job.world.rank == 0 and job.last_loss is not None:
        print(f"loss {job.last_loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
