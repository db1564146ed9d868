"""All ranks of one run: the step that began it, those that joined later, and the keeper of their store.

To the wrapper it is one step. It tells deaths to the keeper, so that the survivors go on, and ends them all when they
cannot: when a rank failed by itself, for the others would fail as well, or when nobody takes up the work.
"""

import signal
import time
from collections.abc import Callable

import msgspec

from ones_slurm.elastic.keeping import Keeper
from ones_slurm.elastic.lending import Announcement
from ones_slurm.elastic.runfolder import LEFT_CODE, Team, Word
from ones_slurm.elastic.step import NOTICE_S, Cause, TaskedStep

# Ours: survivors regroup within a second or two, but one of them may be in the midst of a long evaluation.
_REGROUP_WITHIN_S = 120.0
_KILLED_CODE = 137


class Seat(msgspec.Struct, frozen=True):
    """The ranks of one team on one node."""

    team: str
    node: str


class Crew:
    """`start` begins a team: the step of its ranks, or None where somebody else starts it (a companion's ones-run)."""

    def __init__(self, keeper: Keeper, first: Team, start: Callable[[Team], TaskedStep]) -> None:
        self.keeper = keeper
        self.cause: Cause | None = None
        self.seats = [Seat(first.name, node) for node in first.nodes]
        self._steps = {first.name: start(first)}
        self._teams = {first.name: first}
        self._seen = {first.name: 0}
        self._admitted = {first.name}
        self._gone: set[str] = set()  # those who did not end with 0
        self._failed: dict[str, str] = {}
        self._lenders: dict[str, str] = {}
        self._deaths: list[Cause] = []
        self._live = False
        self._formation = 0
        self._noticed_s: float | None = None
        self._waiting_s: float | None = None
        self.direct = self._steps[first.name].direct

    def new_team(self, nodes: tuple[str, ...], ranks_per_node: int) -> Team:
        """A name for ranks that will be started."""
        team = Team(str(len(self._teams)), nodes, ranks_per_node)
        self._teams[team.name] = team
        return team

    def joins(self, team: Team, step: TaskedStep) -> None:
        """Ranks of this allocation have been started, and come in when the others let them."""
        step.patient = True
        self._steps[team.name], self._seen[team.name] = step, 0

    def lent(self, team: Team, job_id: str) -> None:
        """This team is started by a companion."""
        self._lenders[team.name] = job_id

    def is_local(self, seat: Seat) -> bool:
        """Whether it is one of this allocation's own."""
        return seat.team not in self._lenders

    @property
    def refused(self) -> str:
        """Why Slurm has not created the step that all began with."""
        return next(iter(self._steps.values())).refused

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """The nodes of this allocation that belong to the world."""
        return tuple(dict.fromkeys(seat.node for seat in self.seats if self.is_local(seat)))

    def admitted(self, coming: tuple[Team, ...], going: set[Seat]) -> None:
        """An order was entered: these now belong to the world, and those do not."""
        self.seats = [seat for seat in self.seats if seat not in going]
        self.seats += [Seat(team.name, node) for team in coming for node in team.nodes]
        self._admitted |= {team.name for team in coming}

    def failed(self, team: Team) -> str:
        """Why a team that shall join will not, "" as long as it may."""
        step = self._steps.get(team.name)
        ended = step is not None and step.poll() is not None
        self._collect()
        return self._failed.get(team.name, "its ranks have ended" if ended else "")

    def have_left(self, seats: set[Seat]) -> bool:
        """Whether all ranks of these seats that were started here have ended."""
        return all(
            f"{team.name}.{at * team.ranks_per_node + local}" in self._gone
            for team in self._teams.values()
            if team.name in self._steps and self._steps[team.name].poll() is None
            for at, node in enumerate(team.nodes)
            if Seat(team.name, node) in seats
            for local in range(team.ranks_per_node)
        )

    def drop(self, team: Team) -> None:
        """This team does not come in after all."""
        self._failed.setdefault(team.name, "it was not wanted any more")
        self.keeper.dismiss(team.name)
        if (step := self._steps.get(team.name)) is not None and step.poll() is None:
            step.end()

    def died(self, name: str, how: str, host: str) -> None:
        """A rank has died; where it belongs to the world, the keeper makes a new one of the others."""
        self.keeper.died(name, how)
        team = name.partition(".")[0]
        if team not in self._admitted:
            self._failed.setdefault(team, f"rank {name} on {host}: {how}")
        elif self._seat_of(name) in self.seats:
            self._deaths.append(Cause(name, host, how))
            self._waiting_s = self._waiting_s or time.monotonic()

    def look_at(self, companions: list[Announcement]) -> None:
        """What companions say of their tasks; one that is gone has taken its ranks along."""
        said = {companion.job_id: companion for companion in companions}
        for name, job_id in self._lenders.items():
            lender = said.get(job_id)
            died = lender.died if lender is not None else dict.fromkeys(range(self._teams[name].ranks), "it has ended")
            for task, how in died.items():
                if (member := f"{name}.{task}") not in self._gone:
                    self._gone.add(member)
                    self.died(member, how, f"companion {job_id}")

    def hear(self, word: Word) -> None:
        """Rank 0 said how the world is."""
        if word.live and not self._live:
            self._live = True
            for step in self._steps.values():
                step.patient = True
        if word.formation > self._formation:
            self._formation, self._waiting_s = word.formation, None
            self.seats = [seat for seat in self.seats if seat.node in word.nodes]

    def poll(self) -> int | None:
        """None while any rank runs; then 0 if the last of them ended well, and 75 if all have left."""
        self._collect()
        now_s = time.monotonic()
        if self._waiting_s is not None and now_s - self._waiting_s > _REGROUP_WITHIN_S:
            self.cause = self._deaths[0]
            return self.end()
        codes = [step.poll() for step in self._steps.values()]
        if self.cause is not None and self._noticed_s is None:
            self._noticed_s = now_s
        if None in codes:
            overdue = self._noticed_s is not None and now_s - self._noticed_s > NOTICE_S
            return self.end() if overdue else None
        return self._code([code for code in codes if code is not None])

    def signal(self, number: signal.Signals) -> None:
        for step in self._steps.values():
            if step.poll() is None:
                step.signal(number)

    def end(self) -> int:
        return self._code([step.end() for step in self._steps.values()])

    def _collect(self) -> None:
        for name, step in self._steps.items():
            for cause in step.endings[self._seen[name] :]:
                self._seen[name] += 1
                self._ended(name, cause)

    def _ended(self, team: str, cause: Cause) -> None:
        name = f"{team}.{cause.rank}"
        self._gone.add(name)
        if cause.code == LEFT_CODE or (team in self._admitted and self._seat_of(name) not in self.seats):
            return
        if self._live and (cause.code is None or team != "0"):
            self.died(name, cause.how, cause.host)
        elif self.cause is None:
            self.cause = cause

    def _seat_of(self, name: str) -> Seat:
        team = self._teams[name.partition(".")[0]]
        return Seat(team.name, team.nodes[int(name.partition(".")[2]) // team.ranks_per_node])

    def _code(self, codes: list[int]) -> int:
        self.keeper.close()
        if self.cause is None and self._waiting_s is not None:
            self.cause = self._deaths[0]
        bad = [code for code in codes if code not in (0, LEFT_CODE)]
        if self.cause is not None:
            return self.cause.code or max(bad, default=_KILLED_CODE)
        if bad and min(bad) < 0:
            return min(bad)  # an srun was killed, and its tasks live on
        if bad and not self._gone:
            return max(bad)  # not one task came to run
        # Of tasks that end with 0, srun says nothing.
        started = sum(team.ranks for team in self._teams.values() if team.name in self._steps)
        return 0 if len(self._gone) < started else LEFT_CODE
