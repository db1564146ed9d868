"""A process leaves its group only when gloo's threads are done with it: one that is not would abort its exit."""

import hashlib
import pathlib
import threading
import time

import pytest

pytest.importorskip("torch")

from ones_slurm.elastic.group import Group

pytestmark = pytest.mark.torch


def test_before_the_end_it_waits_for_a_thread_that_still_works_for_gloo() -> None:
    named, go_on, done = threading.Event(), threading.Event(), threading.Event()
    much = bytes(1 << 22)

    def works() -> None:
        pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_gloo_runloop")
        named.set()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            hashlib.sha256(much)  # without the interpreter's lock, as gloo's threads work
        done.set()
        go_on.wait(60)

    thread = threading.Thread(target=works)
    thread.start()
    assert named.wait(60)
    Group().settle()
    assert done.is_set()
    go_on.set()
    thread.join()


def test_where_nothing_works_the_end_is_not_kept_waiting() -> None:
    begun = time.monotonic()
    Group().settle()
    assert time.monotonic() - begun < 4
