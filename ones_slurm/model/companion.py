"""A *companion*: a further Slurm job that lends its nodes to a job, its *base*, and is never merged with it.

It is known by one word in its comment, `ones:companion-of=12`, and by its name, which says for which run and generation
of the base it was asked. So whoever looks at the queue knows what it is for, also after a crash of everybody else.
"""

import re
import shlex
from collections.abc import Sequence

from ones_slurm.model.wire import Loan

_OF = re.compile(r"(?:^|(?<=[\s;,]))ones:companion-of=(?P<base>\d{1,10}(?:_\d{1,10})?)(?=$|[\s;,])", re.ASCII)
_OURS = re.compile(r"(?:^|(?<=[\s;,]))(?:ones:|ones-submit:)[^\s;]*")
_NAME = re.compile(r"ones-companion\.(?P<base>[\d_]+)\.(?P<restarts>\d+)\.(?P<generation>\d+)", re.ASCII)


def companion_of(comment: str | None) -> str | None:
    """The job to which the job with this comment lends its nodes; None for an ordinary job.

    A comment is its user's text: believe it only if both jobs belong to one user.
    """
    found = _OF.search(comment or "")
    return found["base"] if found else None


def companion_comment(base_id: str, base_comment: str) -> str:
    """The comment of a companion: our word, and what else stands in the base's, for sites keep charge codes there."""
    others = _OURS.sub("", base_comment).strip()
    return f"{others} ones:companion-of={base_id}".strip()


def companion_name(base_id: str, restarts: int, generation: int) -> str:
    """The job name: one for each (base, run, generation), so that nobody submits the same companion twice."""
    return f"ones-companion.{base_id}.{restarts}.{generation}"


def asked_for(name: str) -> tuple[str, int, int] | None:
    """(base, run, generation) out of a companion's name; None for any other name."""
    found = _NAME.fullmatch(name)
    return (found["base"], int(found["restarts"]), int(found["generation"])) if found else None


def sbatch_line(loan: Loan, join: Sequence[str], user: str = "") -> list[str]:
    """The submission of a companion that runs `join` (`ones-run --join …`): what the base has, for its time left.

    It is not requeued: a companion that is lost is asked for anew; and it outlives a node of it that fails. 0 minutes
    would mean no limit at all, so at least one is asked for. `user` is set by a root who submits on that user's behalf,
    and then keeps root's environment.
    """
    limit = "UNLIMITED" if loan.minutes is None else str(max(loan.minutes, 1))
    options = {
        "job-name": companion_name(loan.job_id, loan.restarts, loan.generation),
        "comment": loan.comment,
        "nodes": str(loan.nodes),
        "ntasks-per-node": str(loan.tasks_per_node),
        "cpus-per-task": str(loan.cpus_per_task),
        "time": limit,
        "account": loan.account,
        "qos": loan.qos,
        "partition": loan.partition,
        "exclude": ",".join(loan.exclude),
        "gres": loan.gres,
        "constraint": loan.constraint,
        "reservation": loan.reservation,
        "chdir": loan.folder,
        "output": f"{loan.folder}/companion-%j.out",
        "uid": user,
        "export": "PATH" if user else "",
    }
    given = [f"--{name}={value}" for name, value in options.items() if value]
    return ["sbatch", "--parsable", "--no-requeue", "--no-kill", *given, "--wrap", f"exec {shlex.join(join)}"]
