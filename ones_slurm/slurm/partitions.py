"""What a partition allows, as a submission has to know it."""

import msgspec

from ones_slurm.slurm.command import Runner, ask, run_here


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One partition. `max_nodes` is the most nodes of one job: its limit, or all nodes there are."""

    name: str
    default: bool
    up: bool
    max_nodes: int


def partitions(runner: Runner = run_here) -> list[PartitionRecord]:
    """Every partition, hidden ones too. Raises `Unreachable`."""
    return read_partitions(ask(runner, "scontrol", "--all", "--oneliner", "show", "partition"))


def read_partitions(text: str) -> list[PartitionRecord]:
    """From the text of `scontrol -o show partition`, which is the same in all releases."""
    records = []
    for line in text.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        if "PartitionName" in fields:
            total, limit = fields.get("TotalNodes", ""), fields.get("MaxNodes", "")
            nodes = [int(count) for count in (total, limit) if count.isdecimal()]
            records.append(
                PartitionRecord(
                    name=fields["PartitionName"],
                    default=fields.get("Default") == "YES",
                    up=fields.get("State") == "UP",
                    max_nodes=min(nodes, default=0),
                )
            )
    return records
