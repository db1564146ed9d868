"""slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf of a lab; reasons for the unusual keys stand beside them."""

from pathlib import Path

from .spec import PROFILES, LabSpec

GPU_FOLDER = Path("/run/ones-gpus")
GPU_TYPE = "v100"
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")
# The default of the client library, so that slurmdbd finds it as "localhost".
MARIADB_SOCKET = Path("/run/mysqld/mysqld.sock")
DATABASE = "slurm_acct_db"
NODE_MEMORY_MIB = 64_000
PARTITIONS = ("gpu", "other")

Version = tuple[int, int]


def config_files(spec: LabSpec, folder: Path, version: Version) -> dict[str, tuple[str, int]]:
    """Text and mode of every file in the lab's /etc/slurm, for the installed Slurm `version` (year, month)."""
    files = {
        "slurm.conf": (slurm_conf(spec, folder), 0o644),
        "cgroup.conf": (cgroup_conf(version), 0o644),
        # slurmdbd refuses a file that others can read.
        "slurmdbd.conf": (slurmdbd_conf(folder), 0o600),
    }
    if PROFILES[spec.profile].gres and spec.gpus_per_node:
        files["gres.conf"] = (gres_conf(spec), 0o644)
    return files | {name: (text, 0o644) for name, text in spec.etc_slurm.items()}


def slurm_conf(spec: LabSpec, folder: Path) -> str:
    profile = PROFILES[spec.profile]
    has_gres = profile.gres and spec.gpus_per_node > 0
    keys = {
        "ClusterName": spec.name,
        "SlurmctldHost": f"head({spec.addresses['head']})",
        # One root daemon of each kind: the lab has no system users to own anything.
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        # A requeued job may not start for cred_expire + 1 s; the default of 120 s would rule every test.
        "AuthInfo": "cred_expire=5",
        "StateSaveLocation": f"{folder}/state/slurmctld",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd-%n.log",
        "SlurmctldDebug": "verbose",
        "SlurmdDebug": "info",
        # The machine has fewer cores than the nodes claim; without this they turn INVAL.
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SwitchType": "switch/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "MpiDefault": "pmix",
        "MailProg": "/bin/true",
        "JobRequeue": "1",
        "KillWait": "5",
        "MinJobAge": "300",
        "SlurmdTimeout": "30",
        "InactiveLimit": "0",
        "ReturnToService": "2",
        "SchedulerType": "sched/backfill",
        # Short delays for short stories; by default a batch job may wait 3 s before it is first looked at.
        "SchedulerParameters": "bf_interval=5,sched_min_interval=0,batch_sched_delay=0",
        "PriorityType": "priority/multifactor",
        "PriorityWeightAge": "1000",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "head",
        "AccountingStorageEnforce": "associations,limits,qos",
        "AccountingStoreFlags": "job_comment",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobCompType": "jobcomp/none",
    }
    if has_gres:
        keys |= {"GresTypes": "gpu", "AccountingStorageTRES": "gres/gpu"}
    keys |= spec.slurm_conf
    cpus = spec.cpus_per_node
    node = f"CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={NODE_MEMORY_MIB} State=UNKNOWN"
    if has_gres:
        node += f" Gres=gpu:{GPU_TYPE}:{spec.gpus_per_node}"
    share = "EXCLUSIVE" if profile.whole_nodes else "NO"
    lines = [f"{key}={value}" for key, value in keys.items()]
    lines += [f"NodeName={name} NodeAddr={spec.addresses[name]} {node}" for name in spec.node_names]
    lines += [
        f"PartitionName={name} Nodes=ALL Default={default} MaxTime=2-00:00:00 DefaultTime=01:00:00 State=UP "
        f"OverSubscribe={share}"
        for name, default in zip(PARTITIONS, ("YES", "NO"), strict=True)
    ]
    return "\n".join(lines) + "\n"


def gres_conf(spec: LabSpec) -> str:
    """Character devices, or slurmd drops the GPU and CUDA_VISIBLE_DEVICES stays empty; each node has its own slurmd."""
    return f"AutoDetect=off\nName=gpu Type={GPU_TYPE} File={GPU_FOLDER}/gpu[0-{spec.gpus_per_node - 1}]\n"


def cgroup_conf(version: Version) -> str:
    """Without cgroups: 24.11 ends with "Unable to initialize cgroup plugin" unless told so, 22.05 has no such word."""
    return "CgroupPlugin=disabled\n" if version >= (23, 11) else "CgroupAutomount=no\n"


def slurmdbd_conf(folder: Path) -> str:
    keys = {
        "AuthType": "auth/munge",
        "DbdHost": "head",
        "SlurmUser": "root",
        "PidFile": "/run/slurmdbd.pid",
        "LogFile": f"{folder}/log/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": DATABASE,
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())
