"""`SlurmClient` by Slurm's own commands: it works wherever they do, and must always suffice."""

import contextlib
import datetime
import functools
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import NotFound
from ones_slurm.slurm.accounting import columns, read_rows
from ones_slurm.slurm.client import AccountingRow, JobRecord, Refused, Snapshot
from ones_slurm.slurm.command import ANSWER_WITHIN_S, Busy, Runner, ask, run_here
from ones_slurm.slurm.config_text import read_config
from ones_slurm.slurm.hostlists import fold
from ones_slurm.slurm.job_json import RawJob, read_job, read_queue
from ones_slurm.slurm.job_text import read_squeue, squeue_options
from ones_slurm.slurm.jobids import read_job_id
from ones_slurm.slurm.node_text import read_nodes
from ones_slurm.slurm.releases import Release
from ones_slurm.slurm.usage import COLUMNS, Used, read_lines, read_used

_FINISHED = {JobState.DONE, JobState.FAILED}
# Ours: Slurm asks for one second and is seen to need it rarely; after five there is something else wrong.
_BUSY_TRIES = 5


class CommandClient:
    """Asks and commands through `squeue`, `scontrol` and `sacct`.

    `runner` runs a command (on this machine unless a test says otherwise), `clock` and `sleep` are the time.
    """

    def __init__(
        self,
        runner: Runner = run_here,
        *,
        timeout_s: float = ANSWER_WITHIN_S,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ask = functools.partial(ask, runner, timeout_s=timeout_s)
        self._clock = clock
        self._sleep = sleep

    @functools.cached_property
    def version(self) -> Release:
        """The release of the commands here."""
        return Release.parse(self._ask("scontrol", "--version"))

    def snapshot(self) -> Snapshot:
        """Two queries. Finished jobs, which 22.05 goes on listing for `MinJobAge`, are left out."""
        taken_s = self._clock()
        jobs = (read_job(raw) for raw in read_queue(self._ask("squeue", "--all", "--json")))
        unfinished = tuple(job for job in jobs if job.state not in _FINISHED)
        nodes = read_nodes(self._ask("scontrol", "--all", "--oneliner", "show", "node"))
        return Snapshot(taken_s, unfinished, tuple(nodes))

    def job(self, job_id: str) -> JobRecord:
        """One job; also a finished one, as long as Slurm remembers it."""
        wanted = read_job_id(job_id)
        if wanted is None or wanted.step or wanted.het_offset is not None or wanted.task_count > 1:
            raise NotFound(f"{job_id!r} is not a job id", hint="a job id looks like 12, or 12_3 for an array task")
        # 24.11 gives the whole array for one of its tasks, those that wait together first.
        found = [(raw, read_job(raw)) for raw in self._one_or_more_jobs(job_id)]
        for raw, record in found:
            if job_id in {record.job_id, str(raw.job_id)}:
                return record
        for _, record in found:
            if record.state == JobState.PENDING and job_id.partition("_")[0] == record.job_id.partition("_")[0]:
                return msgspec.structs.replace(record, job_id=job_id)
        raise NotFound(f"Slurm knows no job {job_id}")

    def jobs_of(self, user: str) -> list[JobRecord]:
        """One query. 22.05 goes on listing finished jobs for `MinJobAge`."""
        return [read_job(raw) for raw in read_queue(self._ask("squeue", "--all", f"--user={user}", "--json"))]

    def accounting(
        self, *, since_s: float, until_s: float | None = None, job_ids: Sequence[str] = (), user: str | None = None
    ) -> list[AccountingRow]:
        """Rows of all jobs that were pending or running in that time; of all users unless one is named."""
        mark = _mark()
        options = [f"--starttime={_utc(since_s)}"]
        if until_s is not None:
            options.append(f"--endtime={_utc(until_s)}")
        if job_ids:
            options.append(f"--jobs={','.join(job_ids)}")
        options.append(f"--user={user}" if user is not None else "--allusers")
        shown = f"--format={','.join(columns(self.version))}"
        text = self._ask(
            *("sacct", "--duplicates", "--allocations", "--noheader", "--parsable2", f"--delimiter={mark}", shown),
            *options,
        )
        return read_rows(text, mark, self.version)

    def used(self, job_ids: Sequence[str]) -> Used:
        """What these jobs used, as far as accounting was told."""
        shown = ("--duplicates", "--noheader", "--parsable2", f"--format={','.join(COLUMNS)}")
        text = self._ask("sacct", *shown, f"--starttime={_utc(0)}", f"--jobs={','.join(job_ids)}", "--allusers")
        return read_used(read_lines(text))

    def measures_use(self) -> bool:
        """Whether the cluster has what steps use measured at all."""
        config = read_config(self._ask("scontrol", "show", "config"))
        return not config.get("JobAcctGatherType", "none").endswith("none")

    def shrink(self, job_id: str, keep: Sequence[str]) -> None:
        """By `NodeList=`, never by `NumNodes=`: that chooses the nodes itself, and fails the second time.

        Of a pending job the same words would mean required nodes, so it is refused here. Nothing to do for a job that
        has exactly these nodes.
        """
        before = self._in_state(job_id, JobState.RUNNING, "only a running job can give nodes back")
        if set(keep) == set(before.nodes):
            return
        if not keep or not set(keep) < set(before.nodes):
            raise Refused(f"job {job_id} has {fold(before.nodes)} and cannot shrink to {fold(list(keep)) or 'no node'}")
        self._update(job_id, f"NodeList={fold(list(keep))}")
        after = self.job(job_id)
        if set(after.nodes) != set(keep) or (after.batch and after.batch_host not in keep):
            raise Refused(f"Slurm took the new size of job {job_id}, and left it {fold(after.nodes) or 'no node'}")

    def size_pending(self, job_id: str, nodes: int) -> None:
        """Nodes, tasks and CPUs in one update, as 22.05 needs; the tasks and CPUs of each node stay what they were.

        22.05 refuses a size that the partition does not have only after it has changed the tasks and CPUs, so they are
        set back.
        """
        before = self._in_state(job_id, JobState.PENDING, "only a pending job can be given another size")
        tasks = -(-max(before.tasks, before.asked_nodes) // before.asked_nodes) * nodes
        cpus = max(-(-before.cpus // before.asked_nodes) * nodes, tasks)
        try:
            self._update(job_id, *_size(nodes, tasks, cpus))
        except Refused:
            with contextlib.suppress(Refused):
                self._update(job_id, *_size(before.asked_nodes, before.tasks, before.cpus))
            raise
        after = self.job(job_id)
        if after.state == JobState.PENDING and after.asked_nodes != nodes:
            raise Refused(f"Slurm took the new size of job {job_id}, and left it at {after.asked_nodes} nodes")

    def requeue_hold(self, job_id: str) -> None:
        """The job is then completing, and pending and held once its processes are gone. Held, if it waits already."""
        before = self.job(job_id)
        self._command("scontrol", "hold" if before.state == JobState.PENDING else "requeuehold", job_id)

    def release(self, job_id: str) -> None:
        """Lets a held pending job start."""
        self._in_state(job_id, JobState.PENDING, "only a pending job can be released")
        self._command("scontrol", "release", job_id)
        if self.job(job_id).held:
            raise Refused(f"job {job_id} is still held", hint="an administrator's hold can be lifted by them only")

    def start_now(self, job_id: str) -> None:
        """From the second after the one in which Slurm put the job back in the queue.

        In that same second, slurmd would take the new run for the old one, refuse it ("Job credential revoked"), and
        the job would have failed. While the job is completing Slurm would take this, and forget it again when the job
        is done completing.
        """
        before = self._in_state(job_id, JobState.PENDING, "the begin time is set once the job is pending")
        self._update(job_id, f"StartTime={_utc(before.submit_s + 1)}")

    def cancel(self, job_id: str) -> None:
        """`scancel` says nothing of a job that has ended, and complains of one that is long gone."""
        with contextlib.suppress(NotFound):
            self._command("scancel", job_id)

    def _one_or_more_jobs(self, job_id: str) -> list[RawJob]:
        if self.version.scontrol_has_json:
            jobs = read_queue(self._ask("scontrol", "--json", "show", "job", job_id))
            if not jobs:
                # 24.11 gives the same empty list for no such job and for no slurmctld; its words tell them apart.
                self._ask("scontrol", "show", "job", job_id)
            return jobs
        mark = _mark()
        return read_squeue(self._ask("squeue", *squeue_options(job_id, mark)), mark)

    def _in_state(self, job_id: str, state: JobState, rule: str) -> JobRecord:
        record = self.job(job_id)
        if record.state != state:
            raise Refused(f"job {job_id} is {'+'.join(record.slurm_states)}: {rule}")
        return record

    def _update(self, job_id: str, *changes: str) -> None:
        self._command("scontrol", "update", f"JobId={job_id}", *changes)

    def _command(self, *argv: str) -> None:
        for _ in range(_BUSY_TRIES - 1):
            try:
                self._ask(*argv)
            except Busy:
                self._sleep(1.0)
            else:
                return
        self._ask(*argv)


def _mark() -> str:
    """A word between fields that no user can have written into a comment or a name."""
    return f"|{secrets.token_hex(8)}|"


def _size(nodes: int, tasks: int, cpus: int) -> tuple[str, ...]:
    return (f"NumNodes={nodes}-{nodes}", f"NumTasks={tasks}", f"NumCPUs={cpus}")


def _utc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
