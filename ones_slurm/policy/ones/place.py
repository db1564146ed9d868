"""Which GPUs: jobs keep those they have, small ones share nodes without gaps, large ones get whole nodes side by side.

Sizes are given; this only finds the place for them, and moves a small job out of the way where no whole node is left.
"""

from collections.abc import Mapping, Sequence

from ones_slurm.model.cluster import Allocation, JobView, NodeView


class Board:
    """Free GPUs on each node while jobs are put on it."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self.order = {node.name: at for at, node in enumerate(nodes)}
        self.room = {node.name: node.gpus for node in nodes}
        self.free = dict(self.room)
        self.rack = {node.name: node.rack for node in nodes}

    def take(self, allocation: Allocation) -> None:
        """Marks GPUs as held."""
        for name, gpus in allocation:
            self.free[name] -= gpus

    def give_back(self, allocation: Allocation) -> None:
        """Marks them as free again."""
        for name, gpus in allocation:
            self.free[name] += gpus

    def fits(self, allocation: Allocation) -> bool:
        """Whether all of them are there and free."""
        return all(self.free.get(name, 0) >= gpus for name, gpus in allocation)

    def whole(self) -> list[str]:
        """Nodes that nobody is on."""
        return [name for name, free in self.free.items() if free and free == self.room[name]]

    def best_fit(self, gpus: int, prefer: Sequence[str] = ()) -> Allocation:
        """The fullest node on which so many fit; () when there is none."""
        fitting = [name for name, free in self.free.items() if free >= gpus]
        if not fitting:
            return ()
        chosen = min(fitting, key=lambda name: (self.free[name], name not in prefer, self.order[name]))
        return ((chosen, gpus),)

    def across(self, gpus: int, prefer: Sequence[str] = ()) -> Allocation:
        """Over as few nodes as possible, its own and those behind one switch first; () when there are not so many."""
        free = [name for name, count in self.free.items() if count]
        racks: dict[str, int] = {}
        for name in free:
            racks[self.rack[name]] = racks.get(self.rack[name], 0) + self.free[name]
        held = {self.rack[name] for name in prefer if name in self.rack}
        # a rack that holds all of it, and among those the fullest, before several racks
        rank = {
            rack: (rack not in held, count < gpus, count if count >= gpus else -count, rack)
            for rack, count in racks.items()
        }
        free.sort(key=lambda name: (-self.free[name], name not in prefer, rank[self.rack[name]], self.order[name]))
        picked: list[tuple[str, int]] = []
        for name in free:
            take = min(self.free[name], gpus)
            picked.append((name, take))
            gpus -= take
            if not gpus:
                return tuple(sorted(picked, key=lambda pair: self.order[pair[0]]))
        return ()


def place(
    nodes: Sequence[NodeView], jobs: Sequence[JobView], sizes: Mapping[str, int], *, clears: bool = True
) -> dict[str, Allocation]:
    """An allocation for each job with a size in `sizes` (GPUs; 0 gives ()); jobs that are not in it keep theirs.

    Unchanged sizes are untouched, except that with `clears` small jobs make room for one that needs a whole node. A job
    for which there is no room after all gets ().
    """
    board = Board([node for node in nodes if node.usable])
    chosen: dict[str, Allocation] = {}
    waiting: list[JobView] = []
    for job in jobs:
        wanted = sizes.get(job.job_id)
        if wanted is None:
            board.take(tuple(pair for pair in job.allocation if pair[0] in board.room))
        elif wanted == job.gpus and board.fits(job.allocation):
            board.take(job.allocation)
            chosen[job.job_id] = job.allocation
        else:
            waiting.append(job)
    per_node = max(board.room.values(), default=1)
    whole_first = sorted(waiting, key=lambda job: _turn(sizes[job.job_id], per_node))
    movable = [job for job in jobs if job.job_id in sizes and job.requeueable]
    for job in whole_first:
        gpus = sizes[job.job_id]
        prefer = tuple(name for name, _ in job.allocation)
        allocation: Allocation = ()
        if 0 < gpus < per_node:
            allocation = board.best_fit(gpus, prefer)
        elif gpus and clears:
            _make_room(board, gpus // per_node, per_node, movable, chosen)
        allocation = allocation or (board.across(gpus, prefer) if gpus else ())
        board.take(allocation)
        chosen[job.job_id] = allocation
    return chosen


def _turn(gpus: int, per_node: int) -> tuple[bool, int]:
    """Jobs of whole nodes before the small ones that fill the gaps, larger before smaller."""
    return gpus < per_node, -gpus


def _make_room(
    board: Board, nodes: int, per_node: int, movable: Sequence[JobView], chosen: dict[str, Allocation]
) -> None:
    """Moves small jobs together until so many nodes are whole, the emptiest node first, where they fit elsewhere."""
    small = [job for job in movable if 0 < sum(count for _, count in chosen.get(job.job_id, ())) < per_node]
    while len(board.whole()) < nodes:
        on: dict[str, list[JobView]] = {}
        for job in small:
            for name, _ in chosen[job.job_id]:
                on.setdefault(name, []).append(job)
        emptiest = sorted(on, key=lambda name: (board.room[name] - board.free[name], board.order[name]))
        if not any(_clear(board, name, on[name], chosen) for name in emptiest):
            return


def _clear(board: Board, name: str, jobs: Sequence[JobView], chosen: dict[str, Allocation]) -> bool:
    """Moves all of its jobs to other nodes in use; changes nothing where that does not go."""
    before = {job.job_id: chosen[job.job_id] for job in jobs}
    if board.free[name] + sum(count for held in before.values() for at, count in held if at == name) < board.room[name]:
        return False
    free = dict(board.free)
    for held in before.values():
        board.give_back(held)
    own, board.free[name] = board.free[name], 0
    untouched = set(board.whole())
    for other in untouched:
        board.free[other] = 0
    moved: dict[str, Allocation] = {}
    for job in jobs:
        moved[job.job_id] = board.best_fit(sum(count for _, count in before[job.job_id]))
        board.take(moved[job.job_id])
    if not all(moved.values()):
        board.free = free
        return False
    board.free[name] = own
    for other in untouched:
        board.free[other] = board.room[other]
    chosen.update(moved)
    return True
