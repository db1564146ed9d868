"""The command `ones-run`."""

import os
import pathlib
import signal
import sys
import time
from collections.abc import Mapping

import click
import msgspec

from ones_slurm.elastic.allocation import Identity, NoAllocation, SlurmAllocation, identity, ranks_per_node
from ones_slurm.elastic.companion import Base, Companion, start_step
from ones_slurm.elastic.crew import Crew
from ones_slurm.elastic.keeping import Keeper, has_torch
from ones_slurm.elastic.kept_site import keep_site, read_site
from ones_slurm.elastic.launch import (
    Generation,
    Script,
    as_typed,
    rank_starter_beside,
    signal_of,
    srun_line,
    step_environment,
    team_environment,
)
from ones_slurm.elastic.lending import Announcement, JoinWord, dismiss, forget, invite, join_command
from ones_slurm.elastic.link import Link
from ones_slurm.elastic.pipeline_wish import pipeline_file
from ones_slurm.elastic.rescale import Recruiter
from ones_slurm.elastic.runfolder import RunFolder, Team
from ones_slurm.elastic.step import LocalStep, SrunStep, Step, TaskedStep
from ones_slurm.elastic.submitter import Submitter
from ones_slurm.elastic.wrapper import Wrapper
from ones_slurm.model.errors import OnesError, Unreachable, UsageError
from ones_slurm.model.settings import Site, load_site, site_path
from ones_slurm.model.wish import parse_wish
from ones_slurm.peer.client import Client


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--dir", "folder", type=click.Path(path_type=pathlib.Path), help="The run folder: checkpoints and more.")
@click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="What {lr} stands for, at the base batch.")
@click.option("--batch", type=click.IntRange(min=1), help="The global batch where neither onesd nor a wish says one.")
@click.option(
    "--checkpoint-every",
    "checkpoint_every_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the training API saves.",
)
@click.option("--ranks-per-node", type=click.IntRange(min=1), help="Default: one for each GPU of the job on a node.")
@click.option("--join", "base", metavar="JOB", help="Lend this job's nodes to JOB, and end with it. Takes no COMMAND.")
@click.option("--site", type=click.Path(path_type=pathlib.Path), help="The site file.")
@click.option("--dry-run", is_flag=True, help="Print the line that would be run, and do nothing.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def main(  # noqa: PLR0917 - click passes them by name
    folder: pathlib.Path | None,
    lr: float | None,
    batch: int | None,
    checkpoint_every_s: float,
    ranks_per_node: int | None,
    base: str | None,
    site: pathlib.Path | None,
    dry_run: bool,
    debug: bool,
    command: tuple[str, ...],
) -> None:
    """Train with COMMAND, at the size that the co-scheduler chooses, for as long as the job lives.

    In a batch script: `exec ones-run -- python train.py`. The script uses ones_slurm.elastic, or takes its numbers
    from the command line: {local_batch} {batch} {lr} {checkpoint} {world}. Without Slurm, COMMAND simply runs.
    """
    try:
        if base is not None:
            sys.exit(_lend(base, folder, ranks_per_node, load_site(site), command))
        if not command:
            raise UsageError("there is no COMMAND to train with", hint="ones-run -- python train.py")
        job = identity(os.environ)
        run_folder = RunFolder(folder or _default_folder(job))
        run = _Run(
            job,
            script=Script(command=command, lr=lr),
            site=read_site(run_folder, site),
            folder=run_folder,
            batch=batch,
            checkpoint_every_s=checkpoint_every_s,
            ranks_per_node=ranks_per_node,
            site_file=site,
        )
        sys.exit(run.show() if dry_run else run.go())
    except OnesError as error:
        if debug:
            raise
        print(f"ones-run: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


class _Run:
    """The parts of one `ones-run`, put together from its options and the environment."""

    def __init__(
        self,
        job: Identity | None,
        *,
        script: Script,
        site: Site,
        folder: RunFolder,
        batch: int | None,
        checkpoint_every_s: float,
        ranks_per_node: int | None,
        site_file: pathlib.Path | None,
    ) -> None:
        script.check()
        self._script, self._site, self._checkpoint_every_s = script, site, checkpoint_every_s
        self._signal = signal_of(site.launcher)
        self._job, self._site_file = job, site_file
        self._allocation = SlurmAllocation(self._job.job_id, os.environ) if self._job else NoAllocation()
        self._folder = folder
        self._batch, self._ranks_per_node = batch, ranks_per_node
        self._keeper: Keeper | None = None
        self._join = (
            join_command(sys.argv[0], self._job.job_id, self._folder, site_path(site_file)) if self._job else ()
        )

    def show(self) -> int:
        """Prints what `go` would start first."""
        print(as_typed(self._line(self._first())))
        return 0

    def go(self) -> int:
        """Trains to the end; returns the exit code."""
        if self._job is not None and (blocks := pipeline_file(self._allocation.comment(), self._job.submit_dir)):
            os.environ["ONES_PIPELINE"] = str(blocks)  # the ranks have this process's environment
        self._folder.prepare()
        keep_site(self._folder, self._site_file)
        forget(self._folder)
        first = self._first()
        wrapper = Wrapper(
            folder=self._folder,
            script=self._script,
            allocation=self._allocation,
            start=self._start,
            save_signal=self._signal,
            leave_timeout_s=self._site.moves.leave_timeout_s,
            restarts=self._job.restarts if self._job else 0,
            recruiter=Recruiter(self._start_newcomers, self._invite),
            join=self._join,
        )
        if self._job is not None:
            client = Client(self._site.daemon)
            submitter = Submitter(client, lambda _: self._join)
            wrapper.connect(Link(client, self._job.job_id, wrapper.describe, submitter.serve))
        signal.signal(self._signal, wrapper.on_save_signal)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, wrapper.on_term)
        try:
            return wrapper.run(first)
        finally:
            dismiss(self._folder)

    def _first(self) -> Generation:
        """As the last generation of this run folder was, or the job's own size in its first run."""
        nodes = self._allocation.nodes() or (() if self._job else ("localhost",))
        if not nodes:
            raise Unreachable("cannot find out which nodes this job holds", hint="is squeue on this node's PATH?")
        per_node = self._ranks_per_node or (ranks_per_node(os.environ, self._site) if self._job else 1)
        past = self._folder.generations()
        if past:
            return Generation(
                number=past[-1].generation,
                nodes=nodes,
                ranks_per_node=per_node,
                batch=past[-1].batch,
                lr_scale=past[-1].lr_scale,
            )
        return Generation(number=0, nodes=nodes, ranks_per_node=per_node, batch=self._first_batch())

    def _first_batch(self) -> int:
        """The base batch: `--batch`, else the lower bound of the wish; 0 leaves it to a script with our API."""
        if self._batch is not None or not self._script.foreign:
            return self._batch or 0
        wish = parse_wish(self._allocation.comment())
        if wish is None or wish.batch is None:
            raise UsageError(
                "nobody says which global batch the command's placeholders start from",
                hint="ones-run --batch 64 -- …, or sbatch --comment=ones:nodes=1-4,batch=64-512",
            )
        return wish.batch.low

    def _line(self, generation: Generation, *, joining: bool = False) -> list[str]:
        command = self._script.for_generation(generation, self._folder)
        if self._job is None:
            return command
        starter = rank_starter_beside(sys.argv[0])
        return srun_line(generation, self._site.launcher, starter, command, joining=joining)

    def _start(self, generation: Generation) -> Step:
        """The ranks that begin a run. Their store is kept here, unless they are one process that nobody can join."""
        if self._script.foreign or not has_torch() or (self._job is None and generation.ranks == 1):
            return self._step(generation, self._environment(generation))
        self._keeper = Keeper(self._site.launcher.interface)
        first = Team("0", generation.nodes, generation.ranks_per_node)
        try:
            return Crew(self._keeper, first, lambda team: self._step(generation, self._of_team(generation, team)))
        except BaseException:
            self._keeper.close()
            raise

    def _start_newcomers(self, generation: Generation, team: Team) -> TaskedStep:
        """Further ranks in this allocation."""
        here = msgspec.structs.replace(generation, nodes=team.nodes)
        return self._step(here, self._of_team(generation, team, joining=True), joining=True)

    def _invite(self, generation: Generation, team: Team, lender: Announcement) -> None:
        """Further ranks in a companion."""
        word = JoinWord(
            generation=generation.number,
            nodes=team.nodes,
            ranks_per_node=team.ranks_per_node,
            command=tuple(self._script.for_generation(generation, self._folder)),
            cwd=str(pathlib.Path.cwd()),
            env=self._of_team(generation, team, joining=True),
        )
        invite(self._folder, lender.job_id, word)

    def _of_team(self, generation: Generation, team: Team, *, joining: bool = False) -> dict[str, str]:
        assert self._keeper is not None
        return self._environment(generation) | team_environment(
            team,
            f"{self._keeper.address}:{self._keeper.port}",
            joining=generation.number if joining else None,
            first=max(generation.ranks - team.ranks, 0) if joining else 0,
            world=generation.ranks,
        )

    def _environment(self, generation: Generation) -> dict[str, str]:
        return step_environment(
            os.environ,
            generation,
            self._script,
            self._folder,
            self._site.launcher,
            batch_host=self._job.batch_host if self._job else "",
            checkpoint_every_s=self._checkpoint_every_s,
        )

    def _step(self, generation: Generation, env: Mapping[str, str], *, joining: bool = False) -> TaskedStep:
        if self._job is not None:
            return SrunStep(self._line(generation, joining=joining), env)
        foreign, ranks = self._script.foreign, generation.ranks
        try:
            return LocalStep(self._line(generation), env, ranks, foreign=foreign, nodes=generation.nodes)
        except OSError as error:
            raise UsageError(f"cannot run {self._script.command[0]}: {error.strerror}") from error


def _lend(base: str, folder: pathlib.Path | None, per_node: int | None, site: Site, command: tuple[str, ...]) -> int:
    """Serves as a companion; returns the exit code."""
    own = identity(os.environ)
    if command or own is None or folder is None:
        raise UsageError(
            "--join needs a Slurm job to lend, the run folder of the other job by --dir, and no COMMAND",
            hint="companions are submitted by onesd, by jobs or by `ones agent`, as the site file says",
        )
    run_folder = RunFolder(folder)
    run_folder.visit()
    companion = Companion(
        run_folder,
        own.job_id,
        nodes=SlurmAllocation(own.job_id, os.environ).nodes,
        ranks_per_node=per_node or ranks_per_node(os.environ, site),
        start=lambda word: start_step(word, os.environ, site.launcher, rank_starter_beside(sys.argv[0])),
        base_lives=Base(base).lives,
    )
    signal.signal(signal_of(site.launcher), signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, companion.on_term)
    return companion.run()


def _default_folder(job: Identity | None) -> pathlib.Path:
    """`ones-runs/<job id>` where the job was submitted; outside of Slurm a new folder here for each run."""
    if job is not None:
        return pathlib.Path(job.submit_dir) / "ones-runs" / job.job_id
    return pathlib.Path("ones-runs") / f"local-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
