"""The wrapper's picture of its ranks: what their endings mean, and who goes and comes for an order."""

import pathlib

import pytest

from ones_slurm.elastic.crew import Crew, Seat
from ones_slurm.elastic.launch import Generation
from ones_slurm.elastic.lending import Announcement, announce
from ones_slurm.elastic.rescale import Recruiter, Rescale
from ones_slurm.elastic.runfolder import RunFolder, Team, Word
from ones_slurm.elastic.step import Cause, _tasks
from ones_slurm.model.wire import Order

LIVE = Word(generation=0, live=True, ranks=4, nodes=("c1", "c2"))


class Told:
    """A keeper that remembers what it was told."""

    def __init__(self) -> None:
        self.dead: list[str] = []
        self.dismissed: list[str] = []

    def died(self, name: str, how: str) -> None:
        self.dead.append(name)

    def dismiss(self, team: str) -> None:
        self.dismissed.append(team)

    def close(self) -> None:
        pass


class Ranks:
    """A step whose tasks end when the test says so."""

    direct = True
    refused = ""

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self.endings: list[Cause] = []
        self.patient = False
        self.code: int | None = None

    def ends(self, task: int, how: str) -> None:
        self.endings.append(Cause(str(task), "c1", how))

    def poll(self) -> int | None:
        return self.code

    def signal(self, number: object) -> None:
        pass

    def end(self) -> int:
        self.code = self.code or 143
        return self.code


def crew(*nodes: str) -> tuple[Crew, Ranks, Told]:
    ranks, told = Ranks(), Told()
    made = Crew(told, Team("0", nodes or ("c1", "c2"), 2), lambda team: ranks)  # type: ignore[arg-type]
    return made, ranks, told


def test_a_death_is_told_to_the_keeper_once_the_world_can_live_with_it() -> None:
    made, ranks, told = crew()
    made.hear(LIVE)
    ranks.ends(3, "Killed")
    assert made.poll() is None
    assert told.dead == ["0.3"]
    assert made.cause is None
    made.hear(Word(generation=0, live=True, formation=1, ranks=3, nodes=("c1", "c2"), why="rank 3 died"))
    ranks.code = 137
    assert made.poll() == 0, "the others ended well"


def test_before_that_it_is_the_cause_of_the_end() -> None:
    made, ranks, told = crew()
    ranks.ends(3, "Killed")
    assert made.poll() is None
    assert made.cause == Cause("3", "c1", "Killed")
    assert told.dead == []


def test_a_script_that_fails_is_the_cause_of_the_end_also_in_a_live_world() -> None:
    made, ranks, _ = crew()
    made.hear(LIVE)
    ranks.ends(1, "Exited with exit code 5")
    made.poll()
    ranks.code = 143
    assert made.poll() == 5


@pytest.mark.parametrize(("left", "code"), [(range(4), 75), (range(2), 0)])
def test_those_who_left_do_not_hide_how_the_others_ended(left: range, code: int) -> None:
    made, ranks, _ = crew()
    made.hear(LIVE)
    for task in left:
        ranks.ends(task, "Exited with exit code 75")
    ranks.code = 75
    assert made.poll() == code


def test_a_step_that_could_not_start_is_a_failure() -> None:
    made, ranks, _ = crew()
    ranks.code = 1
    assert made.poll() == 1


def test_tasks_as_srun_lists_them() -> None:
    assert _tasks("0,2-4,7") == ["0", "2", "3", "4", "7"]


class Slurm:
    def nodes(self) -> tuple[str, ...]:
        return ("c1", "c2", "c3")


def planned(folder: RunFolder, *nodes: str) -> tuple[Rescale, dict[str, tuple[str, ...]], str]:
    """What comes of an order for these nodes while c1 and c2 train: who is started where, or why not."""
    made, _, _ = crew()
    made.hear(LIVE)
    started: dict[str, tuple[str, ...]] = {}

    def here(generation: Generation, team: Team) -> Ranks:
        started["here"] = team.nodes
        return Ranks()

    def there(generation: Generation, team: Team, lender: Announcement) -> None:
        started[lender.job_id] = team.nodes

    order = Order(generation=1, kind="grow", go=True, live=True, batch=0, nodes=nodes)
    old = Generation(number=0, nodes=("c1", "c2"), ranks_per_node=2, batch=0)
    rescale = Rescale(order, old, made, folder, 10.0)
    declined = rescale.begin(Slurm(), Recruiter(here, there))  # type: ignore[arg-type]
    return rescale, started, declined.reason if declined else ""


def test_nodes_that_are_not_named_go_and_new_ones_come_from_whoever_holds_them(folder: RunFolder) -> None:
    announce(folder, Announcement(job_id="77", nodes=("c8", "c9"), ranks_per_node=4))
    _, started, reason = planned(folder, "c1", "c3", "c9")
    assert (started, reason) == ({"here": ("c3",), "77": ("c9",)}, "")
    wanted = folder.read_order()
    assert wanted is not None
    assert wanted.going == ("0@c2",)
    assert [(team.nodes, team.ranks_per_node) for team in wanted.coming] == [(("c3",), 2), (("c9",), 4)]


def test_a_node_that_is_named_twice_is_shared_with_a_companion(folder: RunFolder) -> None:
    announce(folder, Announcement(job_id="77", nodes=("c2",), ranks_per_node=1))
    _, started, reason = planned(folder, "c1", "c2", "c2")
    assert (started, reason) == ({"77": ("c2",)}, "")
    wanted = folder.read_order()
    assert wanted is not None
    assert wanted.going == ()


def test_a_plan_for_more_than_there_is_changes_nothing(folder: RunFolder, tmp_path: pathlib.Path) -> None:
    _, started, reason = planned(folder, "c1", "c2", "c3", "c4")
    assert reason == "it names c4, which neither this allocation (c1, c2, c3) nor a companion holds"
    assert started == {}
    assert folder.read_order() is None


def test_it_has_happened_when_rank_0_says_so_and_is_done_when_the_leavers_have_ended(folder: RunFolder) -> None:
    made, ranks, _ = crew()
    made.hear(LIVE)
    order = Order(generation=1, kind="shrink", go=True, live=True, batch=0, nodes=("c1",))
    rescale = Rescale(order, Generation(number=0, nodes=("c1", "c2"), ranks_per_node=2, batch=0), made, folder, 10.0)
    assert rescale.begin(Slurm(), Recruiter(None, None)) is None  # type: ignore[arg-type]
    assert rescale.look(LIVE) is None
    assert not rescale.entered
    rescale.look(Word(generation=1, live=True, formation=1, ranks=2, nodes=("c1",)))
    assert rescale.entered
    assert not rescale.done
    for task in (2, 3):
        ranks.ends(task, "Exited with exit code 75")
    made.poll()
    assert rescale.done
    assert made.seats == [Seat("0", "c1")]


def test_an_srun_that_was_killed_is_neither_a_success_nor_a_leave() -> None:
    made, ranks, _ = crew()
    ranks.ends(3, "Exited with exit code 75")
    ranks.code = -9
    assert made.poll() == -9


def test_why_slurm_did_not_create_the_first_step_is_passed_on() -> None:
    made, ranks, _ = crew()
    ranks.refused, ranks.code = "Memory required by task is not available", 1
    assert (made.poll(), made.refused) == (1, "Memory required by task is not available")
