"""Who gets the nodes that are free now, and who still lacks some: the reason to grow one job or to shrink another."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.plan import Target
from ones_slurm.model.pools import Pools, fits, kind_of


class Claims:
    """Free nodes are promised to moves under way first, then to waiting jobs that start, then to those who grow."""

    def __init__(self, view: ClusterView, targets: Mapping[str, Target], growers: Iterable[JobView]) -> None:
        self._nodes = {node.name: node for node in view.nodes}
        self._usable = {node.name for node in view.nodes if node.usable}
        self._free = Pools(view.free_nodes())
        self._coming = Pools(self._nodes[name] for name in _coming(view) if name in self._usable)
        self._short: Counter[tuple[str, int]] = Counter()
        self._granted: set[str] = set()
        for job in view.jobs:
            if job.move is not None:
                self._free.take(job, max(job.move.nodes - len(job.nodes), 0))
        waiting = (job for job in view.jobs if job.state is JobState.PENDING and job.move is None and not job.held)
        for job in sorted(waiting, key=lambda job: (-job.priority, job.submit_s, job.job_id)):
            target = targets.get(job.job_id)
            self._claim(job, target.nodes if target is not None else job.asked_nodes, planned=target is not None)
        for job in growers:
            sound = sum(1 for name in job.nodes if name in self._usable)
            self._claim(job, targets[job.job_id].nodes - sound, planned=True)

    def granted(self, job: JobView) -> bool:
        """Whether all the nodes that the job wants more are free now, and promised to nobody else."""
        return job.job_id in self._granted

    def free_for(self, job: JobView) -> int:
        """Free nodes that the job could use and that nobody has a claim on."""
        return self._free.left_for(job)

    def give_up(self, names: Collection[str]) -> bool:
        """Whether these nodes should be given up now: an unusable one is among them, or somebody lacks such nodes."""
        gone = any(name not in self._usable for name in names)
        for name in names:
            node = self._nodes.get(name)
            for (partition, gpus_per_node), missing in self._short.items():
                if node is not None and missing > 0 and fits(partition, gpus_per_node, kind_of(node)):
                    self._short[partition, gpus_per_node] -= 1
                    gone = True
                    break
        return gone

    def _claim(self, job: JobView, nodes: int, *, planned: bool) -> None:
        """What a job of the plan lacks is kept for it in part; one outside of it takes all at once or nothing."""
        if self._free.left_for(job) >= nodes:
            self._free.take(job, nodes)
            self._granted.add(job.job_id)
            return
        missing = nodes - (self._free.take(job, nodes) if planned else self._free.left_for(job))
        missing -= self._coming.take(job, missing)
        self._short[job.partition, job.gpus_per_node] += missing


def _coming(view: ClusterView) -> Iterable[str]:
    """Nodes that become free without a new action: of jobs that end, and (as a number) of those that become smaller."""
    for job in view.jobs:
        if job.move is not None:
            yield from job.nodes[job.move.nodes :]
        elif job.state is JobState.ENDING:
            yield from job.nodes
