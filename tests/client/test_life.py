"""Start, close, fork and the loop thread: what an application may do with a role, and when."""
import asyncio
import gc
import logging
import os
import threading
import time

import pytest

from mqcore.client import AsyncProducer, ClientError, ClosedError, Message, Producer
from mqcore.client.roles.blocking import BLOCKED_S, LoopThread
from tests.client.threads import cluster_thread
from tests.support.waiting import wait_until

RESTARTS = int(os.environ.get("MQCORE_TEST_RESTARTS", "200"))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with cluster_thread(tmp_path_factory.mktemp("life")) as (address, _):
        yield address


def test_a_producer_that_blocks_sends(address):
    with Producer("PG", namesrv=address) as producer:
        assert producer.is_running
        results = [producer.send(Message("T", f"{n}")) for n in range(3)]
        assert len({result.message_id for result in results}) == 3
    assert not producer.is_running


def test_close_may_be_called_again_and_without_a_start(address):
    never = Producer("PG", namesrv=address)
    never.close()
    never.close()
    with Producer("PG", namesrv=address) as producer:
        producer.close()
    producer.shutdown()


@pytest.mark.parametrize(("prepare", "said"), [
    (lambda p: None, "producer PG is not started"),
    (lambda p: p.close(), "producer PG is closed"),
    (lambda p: (p.start(), p.close()), "producer PG is closed"),
])
def test_use_out_of_its_time_is_told(address, prepare, said):
    producer = Producer("PG", namesrv=address)
    prepare(producer)
    with pytest.raises(ClosedError, match=said):
        producer.send(Message("T", "x"))


def test_a_second_start_is_refused_and_harms_nothing(address):
    with Producer("PG", namesrv=address) as producer:
        with pytest.raises(ClosedError, match="started already"):
            producer.start()
        producer.send(Message("T", "x"))
    with pytest.raises(ClosedError, match="make a new one"):
        producer.start()


def test_a_start_that_fails_leaves_nothing_behind(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    producer = Producer("PG", namesrv="")
    with pytest.raises(ClientError, match="no name server address"):
        producer.start()
    with pytest.raises(ClosedError):
        producer.start()
    producer.close()


def test_the_asyncio_role_follows_the_same_rules(address):
    async def scenario():
        producer = AsyncProducer("PG", namesrv=address)
        with pytest.raises(ClosedError, match="not started"):
            await producer.send(Message("T", "x"))
        async with producer:
            await producer.send(Message("T", "x"))
        await asyncio.gather(producer.close(), producer.close())
        with pytest.raises(ClosedError, match="closed"):
            await producer.send(Message("T", "x"))
    asyncio.run(scenario())


def in_a_child(work):
    """What `work()` returns in a forked child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_is_told_and_makes_its_own(address):
    with Producer("PG", namesrv=address) as producer:
        producer.send(Message("T", "x"))

        def child():
            said = ""
            try:
                producer.send(Message("T", "x"))
            except ClosedError as error:
                said = str(error)
            producer.close()
            with Producer("PG", namesrv=address) as own:
                return said, own.send(Message("T", "child")).status.name

        said = in_a_child(child)
        assert "forked this one" in said
        assert "SEND_OK" in said
        assert producer.send(Message("T", "after")).queue_offset >= 0


def tasks_of(loop_thread):
    async def count():
        return len(asyncio.all_tasks())
    return loop_thread.call(count())


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
def test_many_restarts_leave_no_task_no_thread_and_no_socket(address):
    def once():
        with Producer("PG", namesrv=address) as producer:
            producer.send(Message("T", "x"))

    once()
    shared = LoopThread.shared()
    gc.collect()
    before = (tasks_of(shared), threading.active_count(), open_files())
    for _ in range(RESTARTS):
        once()
    gc.collect()
    wait_until(lambda: open_files() <= before[2], "sockets are closed")
    assert (tasks_of(shared), threading.active_count()) == before[:2]


def test_who_blocks_the_loop_thread_is_named(caplog):
    shared = LoopThread()

    async def wait():
        return 7

    def hold_up():
        until = time.monotonic() + 3 * BLOCKED_S
        while time.monotonic() < until:
            sum(range(10_000))

    with caplog.at_level(logging.WARNING, "mqcore.client"):
        shared.post(hold_up)
        assert shared.call(wait()) == 7
    assert "hold_up" in caplog.text
    shared.post(shared.loop.stop)


def test_a_wait_inside_the_loop_thread_is_refused():
    shared = LoopThread.shared()

    async def inside():
        with pytest.raises(ClientError, match="would wait for itself"):
            shared.call(asyncio.sleep(0))
        return True
    assert shared.call(inside())


def test_a_call_that_takes_too_long_is_cancelled():
    ended = threading.Event()

    async def long():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
    with pytest.raises(TimeoutError):
        LoopThread.shared().call(long(), timeout=0.05)
    assert ended.wait(10)
