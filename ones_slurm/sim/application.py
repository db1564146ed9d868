"""A training application as measured: seconds a step on each placement, and how far an epoch is at each batch size.

The files are those of the Pollux artifact (petuum/adaptdl, branch osdi21-artifact, simulator/traces); the rules that
connect them follow Qiao et al., "Pollux", OSDI 2021, sections 3 and 5.3.
"""

import functools
import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ones_slurm.model.errors import UsageError
from ones_slurm.sim.rows import Column, read_rows
from ones_slurm.sim.truth import Shape

# Placements are known up to here; a wider one counts as this many nodes.
MAX_NODES = 16
# The initial batch and the local batch range of each application, as its authors set them (Pollux, table 1).
LIMITS = {
    "bert": (12, 384, 4, 12),
    "cifar10": (128, 4096, 32, 1024),
    "deepspeech2": (20, 640, 10, 80),
    "imagenet": (200, 12800, 20, 200),
    "ncf": (256, 32768, 32, 32768),
    "yolov3": (8, 512, 4, 8),
}
_TIMES = (Column("step_time", float), Column("sync_time", float))
_PLACED = (Column("placement", str), Column("local_bsz", int), *_TIMES)
_SCALED = (Column("num_nodes", int), Column("num_replicas", int), Column("local_bsz", int), *_TIMES)
_EPOCHS = (Column("progress", float), Column("grad_sqr", float), Column("grad_var", float))


class Application:
    """One application. `goals[e]` is the progress (steps of the initial batch) at which epoch e ends."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        if name not in LIMITS:
            raise UsageError(f"there is no application {name!r}", hint=f"there are: {', '.join(LIMITS)}")
        self.name = name
        self.base_batch, self.max_batch, self.min_local, self.max_local = LIMITS[name]
        self._read_speeds(folder / name)
        self._read_epochs(folder / name)
        self._known: dict[tuple[Shape, int], tuple[float, float]] = {}
        self._lasts_s: dict[tuple[Shape, int], list[float]] = {}
        self._after_s: dict[tuple[Shape, int], list[float]] = {}

    def step_times(self, shape: Shape, local_batch: int) -> tuple[float, float]:
        """Seconds a step, and the part of them that goes into exchanging gradients."""
        key = (shape, local_batch)
        if key not in self._known:
            self._known[key] = self._look_up(shape, local_batch)
        return self._known[key]

    def gradient(self, batch: int, epoch: int) -> tuple[float, float]:
        """Squared norm of the gradient and its variance at the initial batch size, in that epoch."""
        sqr = np.interp(batch, self._batches, self._grad_sqr[epoch])
        var = np.interp(batch, self._batches, self._grad_var[epoch])
        return float(sqr), float(var)

    def split(self, gpus: int, batch: int) -> tuple[int, int]:
        """(local batch, accumulation steps) for a global batch, with as few accumulation steps as possible.

        A batch too small for so many GPUs becomes one of the least measured number of samples on each.
        """
        local = math.ceil(batch / gpus - 1e-8)
        accumulation = math.ceil(local / self.max_local - 1e-8) - 1
        if gpus == 1 and batch > self.base_batch:
            accumulation = max(1, accumulation)
        local = math.ceil(local / (accumulation + 1) - 1e-8)
        return max(min(local, self.max_batch // (gpus * (accumulation + 1))), self.min_local), accumulation

    def pace(self, shape: Shape, batch: int, epoch: int) -> tuple[float, int]:
        """(steps of the initial batch that are learnt in a second, global batch that is really used)."""
        gpus = sum(shape)
        local, accumulation = self.split(gpus, batch)
        step_s, sync_s = self.step_times(shape, local)
        whole_s = step_s + accumulation * (step_s - sync_s)
        used = gpus * local * (accumulation + 1)
        sqr, var = self.gradient(used, epoch)
        return (var + sqr) / (var / (used / self.base_batch) + sqr) / whole_s, used

    @functools.cache  # noqa: B019 -- a handful of applications live as long as the process
    def alone_s(self, gpus: int) -> float:
        """The shortest time at a constant batch on `gpus` GPUs of nodes with four each."""
        return self.left_s(spread(gpus), 0, 0, 1.0)

    def left_s(self, shape: Shape, batch: int, epoch: int, share: float) -> float:
        """Time for `share` of that epoch and all later ones, at a constant batch (0: the best one)."""
        if not batch:
            return min(self.left_s(shape, each, epoch, share) for each in self.batches_on(sum(shape)))
        lasts = self._epoch_s(shape, batch)
        return share * lasts[epoch] + self._after_s[shape, batch][epoch]

    def _epoch_s(self, shape: Shape, batch: int) -> list[float]:
        key = (shape, batch)
        if key not in self._lasts_s:
            lengths = [goal - begun for goal, begun in zip(self.goals, [0.0, *self.goals], strict=False)]
            lasts = [length / self.pace(shape, batch, epoch)[0] for epoch, length in enumerate(lengths)]
            after = [0.0]
            for last in reversed(lasts[1:]):
                after.append(after[-1] + last)
            self._lasts_s[key], self._after_s[key] = lasts, after[::-1]
        return self._lasts_s[key]

    def batches_on(self, gpus: int) -> list[int]:
        """A ladder of global batches that fit on so many GPUs, an eighth more on each rung (ours, fine enough)."""
        batch = max(self.base_batch, self.min_local * gpus)
        ladder = [min(batch, self.max_batch)]
        while batch < self.max_batch:
            batch = min(math.ceil(batch * 1.125), self.max_batch)
            ladder.append(batch)
        return ladder

    def _read_speeds(self, folder: pathlib.Path) -> None:
        placed: dict[Shape, dict[int, tuple[float, float]]] = defaultdict(dict)
        points: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for row in read_rows(folder / "placements.csv", _PLACED):
            shape, local = tuple(int(digit) for digit in row["placement"]), row["local_bsz"]
            placed[rotated(shape)][local] = (row["step_time"], row["sync_time"])
            points[len(shape), sum(shape), local].append((row["step_time"], row["sync_time"]))
        for row in read_rows(folder / "scalability.csv", _SCALED):
            key = (row["num_nodes"], row["num_replicas"], row["local_bsz"])
            points[key].append((row["step_time"], row["sync_time"]))
        self._placed = {shape: _columns(times.items()) for shape, times in placed.items()}
        self._points = {key: np.mean(times, axis=0) for key, times in points.items()}

    @functools.cached_property
    def _between(self) -> Callable[[list[int]], Any]:
        from scipy.interpolate import LinearNDInterpolator  # large, and only needed for placements not measured

        between: Callable[[list[int]], Any] = LinearNDInterpolator(
            np.array(list(self._points)), np.array(list(self._points.values()))
        )
        return between

    def _read_epochs(self, folder: pathlib.Path) -> None:
        files = sorted((int(path.stem.partition("-")[2]), path) for path in folder.glob("validation-*.csv"))
        if not files:
            raise UsageError(f"{folder}: no validation-*.csv", hint="is this a folder of application profiles?")
        tables = [list(read_rows(path, _EPOCHS)) for _, path in files]
        self._batches = np.array([batch for batch, _ in files], float)
        epochs = min(len(table) for table in tables)
        self.goals = [min(table[epoch]["progress"] for table in tables) for epoch in range(epochs)]
        self._grad_sqr = np.array([[table[epoch]["grad_sqr"] for table in tables] for epoch in range(epochs)])
        self._grad_var = np.array([[table[epoch]["grad_var"] for table in tables] for epoch in range(epochs)])

    def _look_up(self, shape: Shape, local_batch: int) -> tuple[float, float]:
        there = self._placed.get(rotated(shape))
        if there is not None:
            locals_, steps, syncs = there
            if not locals_[0] <= local_batch <= locals_[-1]:
                raise ValueError(f"{self.name}: local batch {local_batch} on {shape} was never measured")
            return float(np.interp(local_batch, locals_, steps)), float(np.interp(local_batch, locals_, syncs))
        step_s, sync_s = self._between([min(len(shape), MAX_NODES), sum(shape), local_batch])[0]
        if math.isnan(step_s):
            raise ValueError(f"{self.name}: local batch {local_batch} on {shape} lies outside of what was measured")
        return float(step_s), float(sync_s)


def rotated(shape: Shape) -> Shape:
    """The least of all rotations: placements are equal up to where one begins to count."""
    return min(shape[place:] + shape[:place] for place in range(len(shape)))


def spread(gpus: int, per_node: int = 4) -> Shape:
    """So many GPUs on as few nodes as possible."""
    full, rest = divmod(gpus, per_node)
    return (per_node,) * full + ((rest,) if rest else ())


def _columns(
    times: Iterable[tuple[int, tuple[float, float]]],
) -> tuple[list[int], list[float], list[float]]:
    ordered = sorted(times)
    return [at for at, _ in ordered], [step for _, (step, _) in ordered], [sync for _, (_, sync) in ordered]
