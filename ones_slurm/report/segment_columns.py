"""The columns of the table of segments."""

from ones_slurm.report.column import Column
from ones_slurm.report.figures import gpu_hours
from ones_slurm.report.lines import Line
from ones_slurm.report.shown import show_duration, show_hours, show_time


def _folded(line: Line) -> str:
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(line.segment.nodes))


def _ended(line: Line) -> str:
    return f"{line.segment.ended_by} {line.segment.ended_how}".strip()


COLUMNS: tuple[Column, ...] = (
    Column(key="jobid", title="JOBID", what="job, array task or component", value=lambda line: line.job.job_id),
    Column(key="user", title="USER", what="who submitted it", value=lambda line: line.job.user),
    Column(key="account", title="ACCOUNT", what="account charged", value=lambda line: line.segment.account),
    Column(key="partition", title="PARTITION", what="partition", value=lambda line: line.segment.partition),
    Column(key="name", title="NAME", what="name of the job", value=lambda line: line.segment.name),
    Column(key="seg", title="SEG", what="number of the segment", value=lambda line: line.number, right=True),
    Column(
        key="submit",
        title="SUBMIT",
        what="when the job, or this run or size of it, was submitted",
        value=lambda line: line.segment.submit_s,
        show=show_time,
    ),
    Column(
        key="start",
        title="START",
        what="when it began to hold these nodes; - if never",
        value=lambda line: line.segment.start_s,
        show=show_time,
    ),
    Column(
        key="end",
        title="END",
        what="when it ceased to; - while it goes on (it is counted until now)",
        value=lambda line: None if line.segment.open else line.segment.end_s,
        show=show_time,
    ),
    Column(
        key="wait",
        title="WAIT",
        what="wait before it: since eligible (first start), since its Submit (after a requeue), none after a resize",
        value=lambda line: line.segment.wait_s,
        show=show_duration,
        right=True,
    ),
    Column(key="nodes", title="NODES", what="nodes held", value=lambda line: line.segment.nnodes, right=True),
    Column(
        key="nodelist",
        title="NODELIST",
        what="their names",
        value=_folded,
        default=False,
    ),
    Column(key="gpus", title="GPUS", what="GPUs held", value=lambda line: line.segment.gpus, right=True),
    Column(
        key="batch",
        title="BATCH",
        what="global batch in samples, from the journal; - without one",
        value=lambda line: line.segment.batch,
        right=True,
    ),
    Column(
        key="gpuhours",
        title="GPU-HOURS",
        what="GPUs x (END - START)",
        value=lambda line: gpu_hours(line.segment.gpu_s),
        show=show_hours,
        right=True,
    ),
    Column(
        key="restart",
        title="RESTART",
        what="GPU-hours for which its nodes stayed taken after END, until the requeued job was submitted again",
        value=lambda line: gpu_hours(line.segment.restart_gpu_s),
        show=show_hours,
        right=True,
    ),
    Column(key="endedby", title="ENDED-BY", what="state that ended it, with signal, exit code or uid", value=_ended),
    Column(key="move", title="MOVE", what="move that began it, from the journal", value=lambda line: line.segment.move),
    Column(key="reason", title="REASON", what="why it was moved", value=lambda line: line.segment.reason),
    Column(
        key="samples",
        title="SAMPLES",
        what="samples trained in it and kept, by the job's own account in the journal",
        value=lambda line: line.segment.samples,
        right=True,
        default=False,
    ),
    Column(
        key="lost",
        title="LOST",
        what="samples trained in it for nothing: the job went on from an older checkpoint",
        value=lambda line: line.segment.lost_samples,
        right=True,
        default=False,
    ),
    Column(
        key="startup",
        title="STARTUP",
        what="from START until a move to it was done and the job trained, from the journal",
        value=lambda line: line.segment.startup_s,
        show=show_duration,
        right=True,
        default=False,
    ),
    Column(
        key="moving",
        title="MOVING",
        what="time in it under an order to become another size (at most: it may train on), from the journal",
        value=lambda line: line.segment.moving_s,
        show=show_duration,
        right=True,
        default=False,
    ),
    Column(
        key="companions",
        title="COMPANIONS",
        what="Slurm jobs whose nodes are among its NODES",
        value=lambda line: ",".join(line.segment.companions),
        default=False,
    ),
)
# Those that the line above a job's segments says already.
OF_THE_JOB = frozenset({"jobid", "user", "account", "partition", "name", "submit"})
