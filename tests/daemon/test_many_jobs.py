"""Two thousand jobs that wait at the door at once."""

import asyncio
import resource
import threading
import time

import aiohttp
import msgspec
import pytest
from desk import open_door

from ones_slurm.model.wire import Order, Phase, Reply, Sync

JOBS = [str(number) for number in range(1, 2001)]
BODY = msgspec.json.encode(Sync(phase=Phase.TRAINING, generation=1, batch=64))


def test_two_thousand_jobs_wait_without_a_thread_each_and_all_get_their_order():
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 5000:
        pytest.skip("needs 5000 open files")

    async def one(session, job_id):
        async with session.post(f"http://onesd/v1/jobs/{job_id}/sync?wait_s=30", data=BODY) as answer:
            return msgspec.json.decode(await answer.read(), type=Reply)

    async def all_of_them(place):
        connector = aiohttp.UnixConnector(place.daemon.socket, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            waiting = [asyncio.create_task(one(session, job_id)) for job_id in JOBS]
            while len(place.board.words()) < len(JOBS):
                assert not any(job.done() for job in waiting), "nobody is answered before there is an order"
                await asyncio.sleep(0.05)
            threads, begun = threading.active_count(), time.monotonic()
            for number, job_id in enumerate(JOBS, start=2):
                place.board.post(job_id, Order(generation=number, kind="rebatch", go=False, batch=64))
            replies = await asyncio.gather(*waiting)
            return replies, threads, time.monotonic() - begun

    with open_door(dict.fromkeys(JOBS, "root"), auth="socket") as place:
        replies, threads, took_s = asyncio.run(all_of_them(place))
    assert [reply.order.generation for reply in replies] == list(range(2, 2002))
    assert threads < 20
    assert took_s < 20
