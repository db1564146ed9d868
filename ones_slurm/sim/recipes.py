"""The ten workload classes of ONES (Bian et al., SC'21, and its artifact), with a truth of our own.

Data sets, base batches, learning rates, targets and patience are the artifact's. How fast such a job trains and learns
is not published, so it is ours, and meant to be plausible rather than exact:

* a step on n GPUs with local batch b takes launch + b · sample for compute, and 2 (n-1)/n · bytes / bandwidth for a
  ring exchange of gradients (fp32; Patarasuk and Yuan 2009), 12 GB/s inside a node and 3 GB/s between nodes, half of
  it hidden behind the backward pass;
* accuracy follows top · (1 - exp(-progress / pace)), progress in epochs at the base batch B0; a sample at batch B is
  worth (noise + B0) / (noise + B) of one at B0 (McCandlish et al. 2018), with a noise scale per class;
* a job ends when for `patience` epochs in a row the target is reached or the best accuracy is not beaten by 0.01.
"""

import math
from typing import NamedTuple

# Seconds to launch the kernels of a step (ours), and bytes a second of a ring inside a node and between nodes.
LAUNCH_S = 0.02
INSIDE, BETWEEN = 12e9, 3e9
HIDDEN = 0.5
# An epoch is better than the best so far by this much, or it is not (the artifact's early stop).
STEP_OF_ACCURACY = 0.01


class Recipe(NamedTuple):
    """One class: what the artifact says of it, then, from `sample_s` on, the constants of our truth."""

    name: str
    epoch_samples: tuple[int, ...]
    base_batch: int
    rate: float
    max_rate: float
    max_batch: int
    target: float
    patience: int
    gpus: int
    sample_s: float
    parameters: float
    top: float
    pace: float
    noise: float


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("resnet18-cifar10", (20_000, 40_000), 256, 5e-3, 0.08, 4096, 0.70, 10, 4, 1.5e-4, 11.7e6, 0.82, 9, 2000),
        Recipe(
            "googlenet-cifar10", (20_000, 40_000), 256, 5e-3, 0.08, 4096, 0.70, 10, 4, 2.6e-4, 6.6e6, 0.80, 10, 2000
        ),
        Recipe("vgg16-cifar10", (20_000, 40_000), 128, 1e-3, 0.016, 2048, 0.70, 10, 4, 2.2e-4, 138e6, 0.80, 11, 1500),
        Recipe("alexnet-imagenet", (10_000, 20_000), 64, 2.5e-4, 0.004, 1024, 0.25, 20, 16, 5e-4, 61e6, 0.34, 22, 3000),
        Recipe("resnet50-imagenet", (10_000, 20_000), 32, 5e-4, 0.008, 512, 0.55, 10, 16, 4e-3, 25.6e6, 0.66, 24, 3000),
        Recipe("vgg16-imagenet", (10_000, 20_000), 32, 5e-4, 0.008, 512, 0.55, 10, 16, 6e-3, 138e6, 0.64, 26, 3000),
        Recipe("inception-imagenet", (10_000, 20_000), 32, 5e-4, 0.008, 512, 0.55, 10, 16, 5e-3, 27e6, 0.65, 25, 3000),
        Recipe("bert-cola", (5_000, 8_000), 16, 5e-6, 2e-5, 64, 0.80, 5, 2, 9e-3, 110e6, 0.84, 1.6, 150),
        Recipe("bert-mrpc", (3_600,), 16, 5e-6, 2e-5, 64, 0.80, 5, 2, 9e-3, 110e6, 0.87, 2.0, 150),
        Recipe("bert-sst2", (10_000, 20_000), 32, 2.5e-6, 2e-5, 256, 0.90, 5, 8, 9e-3, 110e6, 0.93, 1.2, 300),
    )
}


def tuned_batch(recipe: Recipe, largest: int) -> int:
    """The global batch of a careful user: the base batch on each GPU asked for, as far as it still learns."""
    return min(recipe.base_batch * min(recipe.gpus, largest), recipe.max_batch)


def step_times(recipe: Recipe, nodes: int, gpus: int, local_batch: int) -> tuple[float, float]:
    """Seconds a step, and those of them in which nothing but the exchange of gradients goes on."""
    compute_s = LAUNCH_S + local_batch * recipe.sample_s
    ring_s = 2 * (gpus - 1) / gpus * recipe.parameters * 4 / (BETWEEN if nodes > 1 else INSIDE)
    sync_s = max(ring_s - HIDDEN * compute_s, ring_s * (1 - HIDDEN))
    return compute_s + sync_s, sync_s


def worth(recipe: Recipe, batch: int) -> float:
    """How much a sample is worth at this global batch, against one at the base batch (at most 1)."""
    return min((recipe.noise + recipe.base_batch) / (recipe.noise + batch), 1.0)


def accuracy(recipe: Recipe, epochs: float) -> float:
    """After so many epochs' worth of samples at the base batch."""
    return recipe.top * (1 - math.exp(-epochs / recipe.pace))


def loss(recipe: Recipe, epochs: float) -> float:
    """A training loss that goes with it, from ln 10 down."""
    return math.log(10) * math.pow(1 - accuracy(recipe, epochs), 1.5)
