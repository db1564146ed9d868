"""What a rank has to know before it becomes the user's command: who is where, and how rank 0 is reached.

`wrappers/ones-rank` tells the story; these are its words. No torch and no mpi4py in here.
"""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

import msgspec

from ones_slurm.elastic.runfolder import RunFolder, Word
from ones_slurm.model.errors import Failed

# Linux: read the IPv4 address of an interface (netdevice(7)).
_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16


class Place(msgspec.Struct, frozen=True):
    """One rank's place in the new world."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def order_ranks(hosts: Sequence[str], batch_host: str) -> list[Place]:
    """Each process's place, by its MPI rank: the batch host's ranks first, other hosts as MPI came upon them.

    Rank 0 has to live on the batch host, the one node that Slurm never takes away from a job.
    """
    by_host: dict[str, list[int]] = {host: [] for host in sorted(dict.fromkeys(hosts), key=lambda h: h != batch_host)}
    for mpi_rank, host in enumerate(hosts):
        by_host[host].append(mpi_rank)
    new_rank = {mpi_rank: rank for rank, mpi_rank in enumerate(r for members in by_host.values() for r in members)}
    return [
        Place(new_rank[mpi_rank], len(hosts), by_host[host].index(mpi_rank), len(by_host[host]))
        for mpi_rank, host in enumerate(hosts)
    ]


def listen(interface: str = "") -> tuple[socket.socket, str, int]:
    """A listening socket on a port that the kernel chose, its address for other hosts, and the port.

    Bound first and told afterwards, so nobody else can have the port.
    """
    listening = socket.create_server(("", 0), backlog=4096)
    return listening, own_address(interface), listening.getsockname()[1]


def interface_of(address: str) -> str:
    """The interface that carries an address, "" if none does."""
    return next((name for name, its in _addresses().items() if its == address), "")


def own_address(interface: str = "") -> str:
    """The address by which other hosts reach this one.

    `interface` is the site's choice; without one it is the address of this host's own name, and where that is a
    loopback one, of the first other interface. Raises `Failed` for an interface without an address.
    """
    if interface:
        if (address := _address_of(interface)) is not None:
            return address
        known = ", ".join(f"{name} ({its})" for name, its in _addresses().items())
        raise Failed(f"the interface {interface} has no IPv4 address here", hint=f"launcher.interface; known: {known}")
    with contextlib.suppress(OSError):
        for found in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, socket.SOCK_STREAM):
            if not (its := str(found[4][0])).startswith("127."):
                return its
    return next((its for its in _addresses().values() if not its.startswith("127.")), "127.0.0.1")


def _addresses() -> dict[str, str]:
    named = {name: _address_of(name) for _, name in socket.if_nameindex()}
    return {name: address for name, address in named.items() if address is not None}


def _address_of(interface: str) -> str | None:
    request = struct.pack("256s", os.fsencode(interface)[: _NAME_BYTES - 1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def say_running() -> None:
    """Tells the wrapper that this step runs, for a script that will not: from now on it may be signalled."""
    where, generation = os.environ.get("ONES_RUN_DIR"), os.environ.get("ONES_GENERATION")
    if where and generation:
        folder = RunFolder(where)
        word = folder.read_word() or Word(generation=0)
        with contextlib.suppress(OSError):  # a full disk is told of when the script saves
            folder.write_word(msgspec.structs.replace(word, generation=int(generation)))


def rank_environment(place: Place, address: str, port: int | str, interface: str) -> dict[str, str]:
    """The variables that torch.distributed's `env://` and our API read.

    gloo and NCCL look for a way out themselves, and gloo by the host's name, which may lead to 127.x: so they are told
    the interface, unless the user told them.
    """
    env = {
        # Those who join a world that trains already come behind its ranks.
        "RANK": str(int(os.environ.get("ONES_FIRST_RANK", "0")) + place.rank),
        "WORLD_SIZE": os.environ.get("ONES_WORLD") or str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        # torch's own choice fails in a torch that was built without libuv, as Debian builds it.
        "USE_LIBUV": os.environ.get("USE_LIBUV", "0"),
    }
    if interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            env[name] = os.environ.get(name, interface)
    return env
