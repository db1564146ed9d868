"""The board between jobs and cluster."""

import asyncio
import threading
import time

import pytest

from ones_slurm.model.wire import Declined, Order, Phase, Progress, Sync
from ones_slurm.slurm.board import Board, follows

LEAVE = Order(generation=2, kind="shrink", go=False, batch=64)
GO = Order(generation=2, kind="shrink", go=True, batch=64, nodes=("a",))


def says(phase, generation=1, **more):
    return Sync(phase=phase, generation=generation, **more)


@pytest.mark.parametrize(
    ("order", "sync", "followed"),
    [
        (LEAVE, says(Phase.TRAINING), False),
        (LEAVE, says(Phase.LEAVING), True),
        (LEAVE, says(Phase.LEFT, 2), True),
        (LEAVE, says(Phase.LEFT, 1), False),
        (LEAVE, says(Phase.TRAINING, declined=Declined(2, "no")), True),
        (LEAVE, says(Phase.TRAINING, declined=Declined(1, "no")), False),
        (GO, says(Phase.LEFT, 2), False),
        (GO, says(Phase.STARTING, 1), False),
        (GO, says(Phase.STARTING, 2), True),
        (GO, says(Phase.TRAINING, 2), True),
    ],
)
def test_an_order_is_answered_at_once_until_it_is_followed(order, sync, followed):
    board = Board()
    board.put("1", sync, 0.0)
    board.post("1", order)
    assert follows(sync, order) is followed
    assert board.unfollowed("1") == (None if followed else order)
    assert board.order("1") == order


def test_only_what_matters_is_news():
    board = Board()
    board.put("1", says(Phase.TRAINING, progress=Progress(step=1)), 1.0)
    assert board.wait_for_news(0) == {"1"}
    board.put("1", says(Phase.TRAINING, progress=Progress(step=2)), 2.0)
    assert board.wait_for_news(0) == set()
    board.put("1", says(Phase.TRAINING, progress=Progress(step=3, samples_per_s=9.0)), 3.0)
    assert board.wait_for_news(0) == {"1"}, "the first measurement lets a policy know the job"
    board.put("1", says(Phase.LEAVING), 4.0)
    assert board.wait_for_news(0) == {"1"}
    assert board.word("1").heard_s == 4.0


def test_news_wake_a_thread_that_waits():
    board = Board()
    threading.Timer(0.05, lambda: board.put("7", says(Phase.LEFT), 0.0)).start()
    began_s = time.monotonic()
    assert board.wait_for_news(600) == {"7"}
    assert time.monotonic() - began_s < 300


def test_two_thousand_long_polls_wait_without_a_thread_each_and_only_theirs_wakes():
    board, woken = Board(), []

    async def poll(job_id):
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        stop = board.listen(job_id, lambda: loop.call_soon_threadsafe(changed.set))
        try:
            await changed.wait()
            woken.append((job_id, board.unfollowed(job_id)))
        finally:
            stop()

    async def all_of_them():
        polls = {str(number): asyncio.create_task(poll(str(number))) for number in range(2000)}
        await asyncio.sleep(0)  # all of them listen
        before = threading.active_count()
        await asyncio.to_thread(board.post, "1234", LEAVE)
        await polls["1234"]
        for one in polls.values():
            one.cancel()
        await asyncio.gather(*polls.values(), return_exceptions=True)
        return before

    threads = asyncio.run(all_of_them())
    assert woken == [("1234", LEAVE)]
    assert threads < 20
    assert board._listeners == {}, "a poll that has ended leaves nothing behind"


def test_posting_the_same_order_again_wakes_nobody():
    board, calls = Board(), []
    board.post("1", LEAVE)
    board.listen("1", lambda: calls.append("woken"))
    board.post("1", LEAVE)
    assert calls == []
    board.post("1", GO)
    board.post("1", None)
    assert calls == ["woken", "woken"]


def test_finished_jobs_are_forgotten_and_newborn_ones_are_not():
    board = Board()
    for job_id, heard_s in (("done", 10.0), ("alive", 10.0), ("newborn", 99.0)):
        board.put(job_id, says(Phase.TRAINING), heard_s)
        board.post(job_id, GO)
    board.forget_all_but({"alive"}, before_s=50.0)
    assert board.words().keys() == {"alive", "newborn"}
    assert board.order("done") is None
    assert board.order("newborn") == GO


def test_many_threads_may_speak_at_once():
    board = Board()

    def speak(offset):
        for number in range(300):
            board.put(str(number), says(Phase.TRAINING, generation=offset), float(offset))
            board.post(str(number), GO if offset % 2 else None)

    threads = [threading.Thread(target=speak, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert board.wait_for_news(0) == {str(number) for number in range(300)}
