"""What this site's Slurm allows, read once at the start: facts, and reasons for what they rule out."""

import functools
from collections.abc import Mapping

import msgspec

from ones_slurm.model.errors import OnesError
from ones_slurm.slurm.command import Runner, ask, run_here
from ones_slurm.slurm.config_text import first_number, read_config, read_options
from ones_slurm.slurm.releases import Release

# Slurm's default for AuthInfo=cred_expire, in seconds; a requeued job waits one second longer.
_CRED_EXPIRE_S = 120.0


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that decisions depend on.

    `ruled_out` says why something cannot be done here, `notes` what is worth knowing; both are sentences for people.
    `requeue_delay_s` is how long a requeued job waits unless its begin time is lifted, `kill_wait_s` the time from
    SIGTERM to SIGKILL, `min_job_age_s` how long Slurm remembers a finished job. `preempt_requeues`: a preempted job
    comes back. `is_operator`: the caller may move other users' jobs. `private_data` is what Slurm shows to nobody but
    the owner (jobs, nodes, …).
    """

    version: str
    cluster: str
    can_shrink: bool
    can_requeue: bool
    requeue_delay_s: float
    kill_wait_s: float
    min_job_age_s: float
    select_type: str
    gres_types: tuple[str, ...]
    mpi_default: str
    accounting: bool
    comment_in_accounting: bool
    gpus_counted: bool
    rate_limited: bool
    preempt_requeues: bool
    user: str
    admin_level: str
    is_operator: bool
    private_data: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def probe(user: str, runner: Runner = run_here) -> SiteFacts:
    """Asks Slurm for its configuration and for the rights of `user`. Raises `Unreachable` when it does not answer."""
    config = read_config(ask(runner, "scontrol", "show", "config"))
    release = Release.parse(config.get("SLURM_VERSION", ""))
    accounting = config.get("AccountingStorageType", "").endswith("slurmdbd")
    level = _admin_level(user, runner) if accounting else "unknown"
    return site_facts(config, release, user=user, admin_level=level)


def site_facts(config: Mapping[str, str], release: Release, *, user: str, admin_level: str) -> SiteFacts:
    """The facts that follow from a configuration; a pure function."""
    options = functools.partial(_options, config)
    accounting = config.get("AccountingStorageType", "").endswith("slurmdbd")
    no_shrink = _why_no_shrink(config, release)
    no_requeue = _why_no_requeue(config)
    slurm_user = config.get("SlurmUser", "root").partition("(")[0]
    is_operator = user in {"root", slurm_user} or admin_level in {"Operator", "Administrator"}
    cred_expire_s = first_number(options("AuthInfo").get("cred_expire", "")) or _CRED_EXPIRE_S
    delay_s = first_number(options("SchedulerParameters").get("requeue_delay", ""))
    facts = SiteFacts(
        version=str(release),
        cluster=config.get("ClusterName", ""),
        can_shrink=not no_shrink,
        can_requeue=not no_requeue,
        requeue_delay_s=cred_expire_s + 1 if delay_s is None else delay_s,
        kill_wait_s=first_number(config.get("KillWait", "")) or 30.0,
        min_job_age_s=first_number(config.get("MinJobAge", "")) or 300.0,
        select_type=config.get("SelectType", ""),
        gres_types=tuple(name for name in config.get("GresTypes", "").split(",") if name),
        mpi_default=config.get("MpiDefault", "none"),
        accounting=accounting,
        comment_in_accounting=accounting and "job_comment" in options("AccountingStoreFlags"),
        gpus_counted=accounting and "gres/gpu" in config.get("AccountingStorageTRES", "").lower().split(","),
        rate_limited="rl_enable" in options("SlurmctldParameters"),
        preempt_requeues="REQUEUE" in config.get("PreemptMode", "").upper().split(","),
        user=user,
        admin_level=admin_level,
        is_operator=is_operator,
        private_data=tuple(word for word in config.get("PrivateData", "none").lower().split(",") if word != "none"),
        ruled_out=(*no_shrink, *no_requeue),
    )
    return msgspec.structs.replace(facts, notes=tuple(_notes(facts, config)))


def _admin_level(user: str, runner: Runner) -> str:
    """The user's level in Slurm's accounting; "unknown" where slurmdbd does not tell, which rules nothing out."""
    try:
        level = ask(runner, "sacctmgr", "--noheader", "--parsable2", "show", "user", user, "format=adminlevel")
    except OnesError:
        return "unknown"
    return level.strip() or "None"


def _options(config: Mapping[str, str], key: str) -> dict[str, str]:
    return read_options(config.get(key, ""))


def _why_no_shrink(config: Mapping[str, str], release: Release) -> list[str]:
    reasons = []
    if "disable_job_shrink" in _options(config, "SchedulerParameters"):
        reasons.append("shrinking is switched off: SchedulerParameters holds disable_job_shrink")
    # Mended in 23.02.7 and 23.11.1.
    if Release(23, 2) <= release < Release(23, 2, 7) or release == Release(23, 11, 0):
        reasons.append(f"no shrinking: slurmctld {release} can crash after a job was resized; update it")
    return reasons


def _why_no_requeue(config: Mapping[str, str]) -> list[str]:
    if config.get("JobRequeue", "1") == "0":
        return ["jobs are not requeued: JobRequeue=0; a job submitted with --requeue still can be"]
    return []


def _notes(facts: SiteFacts, config: Mapping[str, str]) -> list[str]:
    notes = []
    if not facts.accounting:
        notes.append("there is no slurmdbd: the report has the journal only")
    elif not facts.gpus_counted:
        notes.append("accounting counts no GPUs: AccountingStorageTRES lacks gres/gpu; gpus_per_node in the site file")
    if facts.accounting and not facts.comment_in_accounting:
        notes.append(
            "accounting keeps no comment: AccountingStoreFlags lacks job_comment; the report reads submit lines"
        )
    if "gpu" not in facts.gres_types:
        notes.append("Slurm knows no GPUs here (GresTypes): give gpus_per_node of each partition in the site file")
    if facts.rate_limited:
        notes.append("calls are rate-limited (rl_enable): by default 30 at once, then 2 a second for each user")
    if "enable_stepmgr" in _options(config, "SlurmctldParameters"):
        notes.append("enable_stepmgr: steps must have ended before a node is given back, which ones-run sees to")
    if (plugins := config.get("JobSubmitPlugins")) is not None:
        notes.append(f"job submit plugins ({plugins}) see every change of a job and may refuse it")
    if not facts.is_operator:
        notes.append(f"{facts.user} is no Slurm operator: only {facts.user}'s own jobs can be moved")
    return notes
