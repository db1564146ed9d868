"""Reads what `train_and_tell.py` wrote."""

import collections
import pathlib

SCRIPT = pathlib.Path(__file__).parent / "train_and_tell.py"
# Long enough a step that the stories have time on a fast machine as well.
PAUSE_S = 0.015


class Told:
    """One training, over all its generations: `seen[epoch]` lists sample numbers, `losses[step]` the mean loss."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.seen: dict[int, list[int]] = collections.defaultdict(list)
        sums: dict[int, float] = collections.defaultdict(float)
        counts: dict[int, int] = collections.defaultdict(int)
        for path in folder.glob("told-*.txt"):
            for line in path.read_text().splitlines():
                epoch, step, loss, *indices = line.split()
                self.seen[int(epoch)] += map(int, indices)
                sums[int(step)] += float(loss) * len(indices)
                counts[int(step)] += len(indices)
        self.batches = counts
        self.losses = [sums[step] / counts[step] for step in sorted(counts)]
        self.accuracy = float((folder / "accuracy").read_text())

    def curve(self, window: int = 20) -> list[float]:
        """The loss, averaged over windows of steps."""
        return [sum(self.losses[i : i + window]) / window for i in range(0, len(self.losses) - window + 1, window)]


def distance(one: Told, other: Told) -> float:
    """The largest gap between two smoothed loss curves of the same length."""
    return max(abs(a - b) for a, b in zip(one.curve(), other.curve(), strict=True))
