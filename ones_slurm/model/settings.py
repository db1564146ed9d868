"""The site file: one TOML, one reader, every key checked, every number with its unit in its name.

`onesd`, the wrapper and the commands read the same file: `--site`, else `$ONES_SITE`, else `/etc/slurm/ones.toml`.
"""

import difflib
import os
import pathlib
import re
from typing import Annotated, Literal

import msgspec
import toml

from ones_slurm.model.adoption import Adoption
from ones_slurm.model.errors import UsageError

# Beside slurm.conf, which every site already spreads over all its hosts.
DEFAULT_PATH = pathlib.Path("/etc/slurm/ones.toml")

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Whole = Annotated[int, msgspec.Meta(ge=0)]


class Partition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`gpus_per_node` counts where Slurm has no GPU GRES; `elastic = false` keeps the co-scheduler's hands off."""

    gpus_per_node: Whole = 0
    elastic: bool = True


class Launcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a step is started inside an allocation, and what its ranks talk over."""

    mpi: str = "pmix"
    srun_options: tuple[str, ...] = ()
    interface: str = ""
    signal: str = "USR2"


class Moves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ways of changing size are allowed here, and how long each stage may take.

    `skip_requeue_delay` starts a requeued job at once instead of after Slurm's credential delay (121 s by default).

    `companions` says who submits the further jobs that lend nodes to a job while it trains: nobody; the job itself,
    from its batch step; the user's own agent (`ones agent` on a login node, where compute nodes may not submit); or
    `onesd`, for its own user and as root for all. One that does not stand ready within `companion_timeout_s` is
    cancelled: its nodes were free when it was asked for (ours: two minutes are many cycles of a scheduler). When Slurm
    has refused one, that job grows by requeues for `companion_retry_s`.
    """

    shrink: bool = True
    requeue: bool = True
    skip_requeue_delay: bool = True
    leave_timeout_s: Positive = 120.0
    start_timeout_s: Positive = 600.0
    companions: Literal["none", "job", "agent", "daemon"] = "none"
    companion_timeout_s: Positive = 120.0
    companion_retry_s: NotNegative = 900.0


class Engine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often to decide, and how reluctant to be.

    `grow_patience_ticks`: a growth must be wanted that many plans in a row, for each one costs a restart.
    `min_move_gap_s`: no second move of a job within this time of the first, so that it trains more than it moves.
    """

    interval_s: Positive = 30.0
    grow_patience_ticks: Annotated[int, msgspec.Meta(ge=1)] = 2
    min_move_gap_s: NotNegative = 120.0
    max_moves_per_tick: Annotated[int, msgspec.Meta(ge=1)] = 16


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a change of size costs at this site: seconds without progress. `onesd` counts with these numbers until its
    journal holds moves of the kind, rehearsals always.

    `start_s`: from an allocation to the first step (imports, data, restore). `save_s`: writing a checkpoint.
    `rescale_s`: a smaller world from memory, without a restart. `rebatch_s`: another batch on the same nodes.
    `requeue_delay_s`: Slurm's own wait before a requeued job may start (121 s unless it is skipped).
    The defaults are ours: 30 s is what Pollux measured for a restart, the others are typical of a busy file system.
    """

    start_s: NotNegative = 30.0
    save_s: NotNegative = 10.0
    rescale_s: NotNegative = 10.0
    rebatch_s: NotNegative = 5.0
    requeue_delay_s: NotNegative = 0.0


class Constants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The constants of the policies ones and psrpt that a site may find better ones for (`ones sim tune`).

    The defaults are ours, found on published workloads; they are a plateau, so small changes make no difference.

    `alpha` scales the price of a GPU-second. A growth must bring the rest of a job below `grow_below` of its time,
    pause included, or `grow_below_cheap` where a pause is short; a shrink must divide the priced cost by `shrink_gain`.
    To depart from the rule must gain `departure` of a job's cost, for predictions err by tenths.
    """

    alpha: Positive = 1.0
    grow_below: Positive = 0.7
    grow_below_cheap: Positive = 0.8
    shrink_gain: Positive = 2.0
    departure: NotNegative = 0.3


class PolicyChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which policy decides, and the seed of all its chance.

    `history` lets it learn from ended jobs with the same user, script and arguments. A job counts as much as its user's
    weight times its account's (1 where none is given): with 2, an hour of its waiting is as bad as two of others'.
    """

    name: str = "ones"
    seed: Whole = 1
    history: bool = True
    constants: Constants = Constants()
    user_weights: dict[str, Positive] = {}
    account_weights: dict[str, Positive] = {}

    @property
    def full_name(self) -> str:
        """The name with what the site's constants change, as `policy_named` reads it: a journal keeps it for replay."""
        usual = msgspec.structs.asdict(Constants())
        changed = [(key, value) for key, value in msgspec.structs.asdict(self.constants).items() if value != usual[key]]
        return " ".join([self.name, *(f"{key}={value!r}" for key, value in changed)])

    def weight(self, user: str, account: str) -> float:
        """How much a job of that user and account counts."""
        return self.user_weights.get(user, 1.0) * self.account_weights.get(account, 1.0)


class Daemon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where `onesd` listens and keeps its journal. `url` is how jobs and commands reach it from other hosts.

    `auth = "munge"` wants a credential with each request; `"socket"` trusts the kernel's word on who opened the
    Unix socket `socket`, for a machine without munge. `admins` may read every job, as root may. `page_listen` is a
    further "host:port" for browsers and Prometheus, which a Unix socket keeps out; empty: none.
    """

    auth: Literal["munge", "socket"] = "munge"
    url: str = "http://localhost:7077"
    listen: str = "127.0.0.1:7077"
    socket: str = "/run/onesd.sock"
    munge_socket: str = ""
    state_dir: str = "/var/lib/ones-slurm"
    admins: tuple[str, ...] = ()
    page_listen: str = ""

    @property
    def journal(self) -> pathlib.Path:
        """Where `onesd` writes all that it decides, and the reports read it."""
        return pathlib.Path(self.state_dir) / "journal.sqlite"


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole site file. Every table may be left out; the defaults suit a GRES site with munge."""

    name: str = "site"
    partitions: dict[str, Partition] = {}
    launcher: Launcher = Launcher()
    moves: Moves = Moves()
    engine: Engine = Engine()
    costs: Costs = Costs()
    policy: PolicyChoice = PolicyChoice()
    adoption: Adoption = Adoption()
    daemon: Daemon = Daemon()


_TABLES: dict[str, type] = {
    "partitions": Partition,
    "launcher": Launcher,
    "moves": Moves,
    "engine": Engine,
    "costs": Costs,
    "policy": PolicyChoice,
    "policy.constants": Constants,
    "adoption": Adoption,
    "daemon": Daemon,
}


def site_path(given: str | os.PathLike[str] | None = None) -> pathlib.Path | None:
    """The site file that applies: the one given, `$ONES_SITE`, or the default path if it exists."""
    named = given or os.environ.get("ONES_SITE")
    if named:
        return pathlib.Path(named)
    return DEFAULT_PATH if DEFAULT_PATH.exists() else None


def load_site(given: str | os.PathLike[str] | None = None) -> Site:
    """Reads and checks the site file that applies; the defaults when there is none.

    Raises `UsageError` that names file and key, and for an unknown key the nearest valid one.
    """
    path = site_path(given)
    if path is None:
        return Site()
    try:
        raw = toml.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the site file {path}: {error}") from error
    except (toml.TomlDecodeError, IndexError, ValueError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    try:
        return msgspec.convert(raw, Site)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}", hint=_nearest(str(error))) from error


def _nearest(message: str) -> str | None:
    """For an unknown key, the valid key of that table that looks most like it."""
    unknown = re.search(r"unknown field `([^`]*)`(?: - at `\$([^`]*)`)?", message)
    if unknown is None:
        return None
    table = _TABLES.get((unknown[2] or "").removeprefix(".").partition("[")[0], Site)
    keys = [field.encode_name for field in msgspec.structs.fields(table)]
    near = difflib.get_close_matches(unknown[1], keys, 1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else f"valid keys here: {', '.join(keys)}"
