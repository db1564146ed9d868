"""The schedules of one placement, one for each number of micro-batches: searched when first asked for, then kept.

A training keeps its book in a file beside its checkpoints, so a later generation with the same number of micro-batches
begins at once. When blocks turn out to take other times than was assumed, the book begins anew with the measured ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ones_slurm.model.errors import OnesError
from ones_slurm.pipeline.files import Plan, write_kept
from ones_slurm.pipeline.replay import replay
from ones_slurm.pipeline.search import search
from ones_slurm.pipeline.spec import Placement
from ones_slurm.pipeline.verify import verify

# A block that is so much faster or slower than assumed can change which schedule is best; less is the noise of a
# machine with other work (ours).
DRIFT = 0.25
# All ranks wait for a search, so it may take as long as starting a process does (ours).
SEARCH_S = 5.0


class Kept(msgspec.Struct, kw_only=True):
    """The file. `measured_us` are times of blocks by name, as found since the schedules were searched."""

    placement: Placement
    plans: dict[int, Plan] = {}
    measured_us: dict[str, float] = {}


class Book:
    """Opened with the placement that the user gave; a file of another one is not used."""

    def __init__(self, placement: Placement, path: Path | None = None) -> None:
        self._path = path
        self._kept = _read(path, placement) or Kept(placement=placement)
        if drift(self._kept.placement, self._kept.measured_us) > DRIFT:
            self._kept = Kept(placement=with_times(self._kept.placement, self._kept.measured_us))

    @property
    def placement(self) -> Placement:
        """The blocks, with the times that schedules are searched for."""
        return self._kept.placement

    def plan(self, micro_batches: int, budget_s: float = SEARCH_S) -> Plan:
        """The schedule for so many micro-batches."""
        if micro_batches not in self._kept.plans:
            answer = search(self.placement, micro_batches, budget_s)
            self._kept.plans[micro_batches] = Plan(
                schedule=answer.schedule,
                makespan_us=answer.verdict.makespan_us,
                makespan_bound_us=answer.makespan_bound_us,
                period_us=answer.period_us,
                period_bound_us=answer.period_bound_us,
            )
            self._write()
        return self._kept.plans[micro_batches]

    def add(self, counts: Iterable[int], budget_s: float) -> None:
        """Schedules for further numbers of micro-batches, so that it is known what they would take."""
        for count in counts:
            with contextlib.suppress(OnesError):  # what cannot be had in time is left out
                self.plan(count, budget_s)

    def steps_s(self) -> tuple[tuple[int, float], ...]:
        """(micro-batches, seconds of a step) of all schedules in the book."""
        return tuple((count, plan.makespan_us / 1e6) for count, plan in sorted(self._kept.plans.items()))

    def measured(self, times_us: Mapping[str, float]) -> None:
        """Keeps what blocks have taken; it counts when the book is opened the next time."""
        self._kept.measured_us = {**self._kept.measured_us, **times_us}
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            write_kept(self._kept, self._path)


def drift(placement: Placement, measured_us: Mapping[str, float]) -> float:
    """By what part the block that is furthest from its time is faster or slower."""
    times = {block.name: block.time_us for block in placement.blocks}
    return max((abs(took / times[name] - 1.0) for name, took in measured_us.items() if name in times), default=0.0)


def with_times(placement: Placement, measured_us: Mapping[str, float]) -> Placement:
    """The same blocks with measured times; one that does nothing still has to take its place in the order."""
    blocks = (
        msgspec.structs.replace(block, time_us=max(round(measured_us.get(block.name, block.time_us), 1), 0.1))
        for block in placement.blocks
    )
    return msgspec.structs.replace(placement, blocks=tuple(blocks))


def _read(path: Path | None, placement: Placement) -> Kept | None:
    """What an earlier generation left, if it is whole, of this placement, and runs."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept) if path is not None else None
    except (OSError, msgspec.MsgspecError, OnesError):
        return None
    if kept is None or with_times(kept.placement, _ones(placement)) != with_times(placement, _ones(placement)):
        return None
    try:
        sound = {count: plan for count, plan in kept.plans.items() if _is_sound(kept.placement, count, plan)}
    except OnesError:
        sound = {}
    return Kept(placement=kept.placement, plans=sound, measured_us=kept.measured_us)


def _is_sound(placement: Placement, count: int, plan: Plan) -> bool:
    schedule = plan.schedule
    if schedule.placement != placement or schedule.micro_batches != count:
        return False
    return not verify(placement, count, replay(placement, schedule.orders)).faults


def _ones(placement: Placement) -> dict[str, float]:
    return {block.name: 1.0 for block in placement.blocks}
