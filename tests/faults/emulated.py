"""An emulated training: it follows a throughput model instead of computing, and everything else about it is real.

`emulated.py TOLD TOTAL_SAMPLES` is started by the real `ones-run`, `srun` and `ones-rank`. It speaks with the wrapper
through the real run folder, as the training API does: order, word, checkpoint, exit code 75. Its ranks take each step
together over TCP, so a rank that is dead, frozen or cut off stops all of them, as a collective would. TOLD gets a line
for each step before it counts: `time run step samples batch`, where `run` names the process.
"""

import os
import pathlib
import signal
import socket
import sys
import time
import zlib

import msgspec

from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder, Word, write_whole
from ones_slurm.model.wire import Declined, Progress

BATCH = 64
# The throughput model: what one rank takes for a batch of 64, and what the ranks' exchange takes.
COMPUTE_S, EXCHANGE_S = 0.24, 0.02
MEET_WITHIN_S = 60.0
GO, LEAVE, FINISH = b"g", b"l", b"f"


class Checkpoint(msgspec.Struct):
    """The state of an emulated training."""

    step: int = 0
    samples: int = 0


class Told:
    """The log of steps. What a full disk does not take is kept and written later."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._waiting = path, b""

    def tell(self, line: str) -> None:
        self._waiting += line.encode() + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                file.write(self._waiting)
        except OSError:
            return
        self._waiting = b""


class Lead:
    """Rank 0: it steps, saves, speaks and hears."""

    def __init__(self, folder: RunFolder, told: Told, total_samples: int, ranks: int) -> None:
        self._folder, self._told, self._total, self._ranks = folder, told, total_samples, ranks
        self._generation = int(os.environ["ONES_GENERATION"])
        self._batch = int(os.environ["ONES_BATCH"]) or BATCH
        self._every_s = float(os.environ["ONES_CHECKPOINT_EVERY_S"])
        self._place = folder.checkpoints / "emulated.json"
        self._at = self._resume()
        self._first = self._at
        self._declined: Declined | None = None
        self._said_s, self._said_samples = time.monotonic(), self._at.samples
        self._run = f"{os.environ['SLURM_JOB_ID']}.{os.environ.get('SLURM_RESTART_COUNT', '0')}.{self._generation}"
        self._run += f".{os.environ['ONES_NODE']}.{os.getpid()}"

    def train(self, peers: list[socket.socket]) -> int:
        self._say()
        saved_s = time.monotonic()
        while self._at.samples < self._total:
            for peer in peers:
                peer.sendall(GO)
            time.sleep(EXCHANGE_S + COMPUTE_S * self._batch / BATCH / self._ranks)
            if not all(hear(peer) for peer in peers):
                wait_to_be_ended()
            self._at = Checkpoint(self._at.step + 1, self._at.samples + self._batch)
            self._told.tell(f"{time.time():.3f} {self._run} {self._at.step} {self._at.samples} {self._batch}")
            if self._leaves():
                return self._end(peers, LEAVE, LEFT_CODE)
            if time.monotonic() - saved_s >= self._every_s and self._save():
                saved_s = time.monotonic()
            if time.monotonic() - self._said_s >= 1.0:
                self._say()
        while not self._save():
            time.sleep(0.5)
        self._say(finished=True)
        return self._end(peers, FINISH, 0)

    def _end(self, peers: list[socket.socket], word: bytes, code: int) -> int:
        for peer in peers:
            peer.sendall(word)
        return code

    def _leaves(self) -> bool:
        order = self._folder.read_order() if self._folder.order_path.exists() else None
        if order is None or (self._declined is not None and order.generation == self._declined.generation):
            return False
        if self._save():
            self._say(left=True)
            return True
        self._declined = Declined(order.generation, "the checkpoint cannot be written")
        self._say()
        return False

    def _resume(self) -> Checkpoint:
        try:
            return msgspec.json.decode(self._place.read_bytes(), type=Checkpoint)
        except FileNotFoundError:
            return Checkpoint()

    def _save(self) -> bool:
        try:
            write_whole(self._place, msgspec.json.encode(self._at))
        except OSError:
            return False
        return True

    def _say(self, *, left: bool = False, finished: bool = False) -> None:
        now_s = time.monotonic()
        speed = (self._at.samples - self._said_samples) / max(now_s - self._said_s, 1e-3)
        self._said_s, self._said_samples = now_s, self._at.samples
        word = Word(
            generation=self._generation,
            first_step=self._first.step,
            first_samples=self._first.samples,
            batch=self._batch,
            ranks=self._ranks,
            left=left,
            finished=finished,
            declined=self._declined,
            progress=Progress(
                step=self._at.step,
                samples=self._at.samples,
                total_samples=self._total,
                samples_per_s=speed,
                base_batch=BATCH,
            ),
        )
        try:
            self._folder.write_word(word)
        except OSError:
            if left:
                raise


def hear(peer: socket.socket) -> bytes:
    """The next word of a peer, b"" when it is gone."""
    try:
        return peer.recv(1)
    except OSError:
        return b""


def follow(lead: socket.socket) -> int:
    """Any other rank: a step when rank 0 says so."""
    while word := hear(lead):
        if word != GO:
            return LEFT_CODE if word == LEAVE else 0
        lead.sendall(b"k")
    return wait_to_be_ended()


def wait_to_be_ended() -> int:
    """A peer is gone. As in a collective without a time-out nothing happens until `ones-run` or Slurm ends this."""
    while True:
        time.sleep(1.0)


def meet(rank: int, ranks: int, address: str, port: int) -> list[socket.socket]:
    """Rank 0 has all others at the end, each of them has rank 0."""
    if rank == 0:
        with socket.create_server(("", port), backlog=ranks) as door:
            door.settimeout(MEET_WITHIN_S)
            peers = [door.accept()[0] for _ in range(ranks - 1)]
        for peer in peers:
            peer.settimeout(None)
        return peers
    deadline = time.monotonic() + MEET_WITHIN_S
    while True:
        try:
            met = socket.create_connection((address, port), timeout=5.0)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            met.settimeout(None)
            return [met]


def main() -> int:
    told, total_samples = Told(pathlib.Path(sys.argv[1])), int(sys.argv[2])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = RunFolder(os.environ["ONES_RUN_DIR"])
    # Nodes are held whole, so no other world has its rank 0 here; late packets of an earlier one may come.
    world = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}.{os.environ['ONES_GENERATION']}"
    port = 20_000 + zlib.crc32(world.encode()) % 10_000
    peers = meet(rank, ranks, os.environ["MASTER_ADDR"], port)
    if rank == 0:
        return Lead(folder, told, total_samples, ranks).train(peers)
    return follow(peers[0])


if __name__ == "__main__":
    sys.exit(main())
