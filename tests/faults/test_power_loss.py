"""Journal and checkpoints survive a power cut after any write: every prefix of what was written is tried."""

import itertools
import os
import pathlib
import shutil

import pytest
from views import job, view

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.records import Run, Tick
from ones_slurm.engine.replay import replay
from ones_slurm.model.plan import Outcome, Shrink, Status
from ones_slurm.policy.registry import policy_named

TICKS = 6


def decide(number):
    """Each tick sends one action, and all but the last one end."""
    seen = view(job("a", "c1 c2"), now_s=1000.0 + number)
    wanted = policy_named("equal").decide(seen, None)
    shrink = Shrink(job_id="a", generation=number, keep=("c1",), batch=64, reason="others wait")
    decision = Decision(job_id="a", reason="others wait", action=shrink, numbers={})
    return Tick(
        tick=number, now_s=seen.now_s, took_s=0.1, view=seen, plan=wanted, memory=Memory(), decisions=(decision,)
    )


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def restored(folder, image):
    """The folder as a machine finds it when it comes up again: locks and shared memory are gone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in image.items():
        if not name.endswith(("-shm", ".lock")):
            (folder / name).write_bytes(content)
    return folder / "journal.sqlite"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A journal of some ticks: the files at the end, and how long the log was after each transaction."""
    place = tmp_path_factory.mktemp("writer") / "journal.sqlite"
    log = place.with_name(place.name + "-wal")
    stood: list[tuple[int, int, int]] = []  # (length of the log, last tick, actions without an end)
    with Journal.open(place) as journal:
        journal.begin_run(Run(policy="equal", seed=3), 1000.0)
        stood.append((log.stat().st_size, 0, 0))
        for number in range(1, TICKS + 1):
            journal.record(decide(number))
            stood.append((log.stat().st_size, number, 1))
            if number < TICKS:
                outcome = Outcome(job_id="a", generation=number, status=Status.DONE, reason="")
                journal.end(outcome, 1000.5 + number)
                stood.append((log.stat().st_size, number, 0))
        yield files(place.parent), stood


def cuts(stood):
    """Each length that the log may have on the disk: the end of every write, bytes around it, and some in between."""
    first, last = stood[0][0], stood[-1][0]
    ends = {length + around for length, _, _ in stood for around in (-1, 0, 1)}
    return sorted(length for length in ends | set(range(first, last, 1021)) if first <= length <= last)


def test_a_journal_cut_after_any_write_opens_with_all_that_was_promised(written, tmp_path):
    image, stood = written
    for length in cuts(stood):
        cut = image | {"journal.sqlite-wal": image["journal.sqlite-wal"][:length]}
        _, ticks, unfinished = max(told for told in stood if told[0] <= length)
        with Journal.open(restored(tmp_path / "cut", cut)) as journal:
            assert journal.last_tick() == ticks, f"cut at {length}"
            assert len(journal.unfinished_actions()) == unfinished, f"cut at {length}"
            assert replay(journal, policy_named) == (ticks, None), f"cut at {length}"


def test_rubbish_at_the_end_of_the_log_is_no_transaction(written, tmp_path):
    """A disk may have made the file longer before it wrote the contents."""
    image, stood = written
    for length, ticks, _ in stood:
        log = image["journal.sqlite-wal"]
        torn = log[:length] + bytes(len(log) - length)
        with Journal.open(restored(tmp_path / "torn", image | {"journal.sqlite-wal": torn})) as journal:
            assert journal.last_tick() == ticks


def test_a_power_cut_while_the_log_is_moved_into_the_file_loses_nothing(written, tmp_path):
    """SQLite does so now and then: any part of the pages may be there, and the log is still whole."""
    image, _ = written
    place = restored(tmp_path / "moved", image)
    with Journal.open(place):
        pass  # the last one to close moves all of it
    old, new = image["journal.sqlite"], place.read_bytes()
    page = 4096
    assert len(new) > page * 10
    for pages in range(len(new) // page + 1):
        partly = new[: pages * page] + old[pages * page :]
        with Journal.open(restored(tmp_path / "partly", image | {"journal.sqlite": partly})) as journal:
            assert journal.last_tick() == TICKS
            assert len(journal.unfinished_actions()) == 1


class Disk:
    """Writes down what a writer asks of the kernel, and tells which folders a power cut may leave."""

    def __init__(self):
        self.asked: list[tuple] = []

    def record(self, monkeypatch, module):
        disk = self

        class File:
            def __init__(self, name, file):
                self.name, self.file = name, file

            def write(self, block):
                disk.asked.append(("write", self.name, bytes(block)))
                return self.file.write(block)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.file.close()

            def __getattr__(self, name):
                return getattr(self.file, name)

        class Os:
            def fdopen(self, descriptor, mode):
                file = os.fdopen(descriptor, mode)
                return File(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink().name, file) if mode == "wb" else file

            def fsync(self, descriptor):
                path = pathlib.Path(f"/proc/self/fd/{descriptor}").readlink()
                disk.asked.append(("sync folder",) if path.is_dir() else ("sync", path.name))
                os.fsync(descriptor)

            def __getattr__(self, name):
                return getattr(os, name)

        replace, unlink = pathlib.Path.replace, pathlib.Path.unlink

        def asked_replace(path, target):
            self.asked.append(("rename", path.name, pathlib.Path(target).name))
            return replace(path, target)

        def asked_unlink(path, missing_ok=False):
            unlink(path, missing_ok)
            self.asked.append(("unlink", path.name))

        monkeypatch.setattr(module, "os", Os())
        monkeypatch.setattr(pathlib.Path, "replace", asked_replace)
        monkeypatch.setattr(pathlib.Path, "unlink", asked_unlink)

    def images(self, upto):
        """After the first `upto` requests: unsynced data may be there in part, and of unsynced names any first few."""
        for kept, share in itertools.product((0.0, 0.5, 1.0), repeat=2):
            names: list[tuple] = []
            data: dict[int, bytes] = {}
            synced: dict[int, int] = {}
            now: dict[str, int] = {}
            durable: dict[str, int] = {}
            for what in self.asked[:upto]:
                if what[0] == "write":
                    if what[1] not in now:
                        now[what[1]] = len(data)
                        data[len(data)] = b""
                        names.append(("create", what[1], now[what[1]]))
                    data[now[what[1]]] += what[2]
                elif what[0] == "sync":
                    synced[now[what[1]]] = len(data[now[what[1]]])
                elif what[0] == "sync folder":
                    durable, names = dict(now), []
                elif what[0] == "rename":
                    now[what[2]] = now.pop(what[1])
                    names.append(what)
                else:
                    now.pop(what[1], None)
                    names.append(what)
            for name in names[: round(len(names) * kept)]:
                if name[0] == "create":
                    durable[name[1]] = name[2]
                elif name[0] == "rename" and name[1] in durable:
                    durable[name[2]] = durable.pop(name[1])
                elif name[0] == "unlink":
                    durable.pop(name[1], None)
            yield {
                name: data[file][: synced.get(file, 0) + round(share * (len(data[file]) - synced.get(file, 0)))]
                for name, file in durable.items()
            }


@pytest.mark.torch
def test_after_a_power_cut_at_any_write_the_last_saved_checkpoint_or_a_newer_one_is_found(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from ones_slurm.elastic import checkpoint

    disk, promised = Disk(), []
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with monkeypatch.context() as patched:
        disk.record(patched, checkpoint)
        for step in (1, 2, 3, 4):
            checkpoint.save(folder, step, {"weights": torch.full((64,), float(step)), "step": step})
            promised.append((len(disk.asked), step))
    for upto in range(len(disk.asked) + 1):
        least = max((step for asked, step in promised if asked <= upto), default=0)
        for image in disk.images(upto):
            shutil.rmtree(folder)
            folder.mkdir()
            for name, content in image.items():
                (folder / name).write_bytes(content)
            found, _ = checkpoint.find_whole(folder)
            step = checkpoint.load(found)["step"] if found is not None else 0
            assert step >= least, f"after {disk.asked[upto - 1][0]}, request {upto}: {step} of {sorted(image)}"
    assert {what[0] for what in disk.asked} == {"write", "sync", "sync folder", "rename", "unlink"}
