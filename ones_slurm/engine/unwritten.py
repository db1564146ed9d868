"""A journal that keeps nothing, for runs that can be repeated at will and need no crash safety."""

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Memory
from ones_slurm.engine.records import Tick
from ones_slurm.model.plan import Action, Outcome, Plan


class Unwritten(Journal):
    """Begins empty, and forgets at once whatever it is told."""

    def __init__(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def record(self, tick: Tick) -> None: ...

    def end(self, outcome: Outcome, now_s: float) -> None: ...

    def event(self, now_s: float, what: str, job_id: str = "") -> None: ...

    def prune(self, views_before_s: float) -> int:  # noqa: ARG002
        return 0

    def last_tick(self) -> int:
        return 0

    def last_memory(self) -> Memory:
        return Memory()

    def last_plan(self) -> Plan:
        return Plan()

    def last_generations(self) -> dict[str, int]:
        return {}

    def unfinished_actions(self) -> list[Action]:
        return []
