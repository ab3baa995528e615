"""The future of a send does what a standard one does, whoever waits and whenever."""
import asyncio
import concurrent.futures
import threading
from concurrent.futures import CancelledError, InvalidStateError

import pytest

from mqcore.client.roles.future import SendFuture


def settled(waited_for):
    """Futures with a result and an error; `waited_for`: somebody asked before."""
    good, bad = SendFuture(), SendFuture()
    if waited_for:
        for future in (good, bad):
            with pytest.raises(TimeoutError):
                future.result(timeout=0)
    good.set_result(7)
    bad.set_exception(KeyError("x"))
    return good, bad


@pytest.mark.parametrize("waited_for", [False, True])
def test_an_outcome_is_told_to_who_asks_later(waited_for):
    good, bad = settled(waited_for)
    called = []
    for future in (good, bad):
        future.add_done_callback(called.append)
        assert future.done()
        assert not future.running()
        assert not future.cancel()
    assert called == [good, bad]
    assert (good.result(), good.exception(timeout=1), good.result(0)) == (7, None, 7)
    assert isinstance(bad.exception(), KeyError)
    with pytest.raises(KeyError):
        bad.result()
    assert concurrent.futures.wait([good, bad], 5).not_done == set()
    assert "finished" in repr(good)


@pytest.mark.parametrize("waited_for", [False, True])
def test_a_second_outcome_is_refused(waited_for):
    for future in settled(waited_for):
        with pytest.raises(InvalidStateError):
            future.set_result(8)
        with pytest.raises(InvalidStateError):
            future.set_exception(KeyError())


def test_a_cancelled_one_takes_no_outcome():
    future = SendFuture()
    assert future.cancel()
    assert future.done()
    assert future.cancelled()
    with pytest.raises(InvalidStateError):
        future.set_result(1)
    with pytest.raises(CancelledError):
        future.result()


def test_threads_that_wait_are_woken_whenever_the_outcome_comes():
    for _ in range(300):
        future, got = SendFuture(), []
        threads = [threading.Thread(target=lambda f=future, g=got: g.append(f.result(20)))
                   for _ in range(2)]
        threads[0].start()
        setting = threading.Thread(target=future.set_result, args=(5,))
        setting.start()
        threads[1].start()
        for thread in (*threads, setting):
            thread.join(20)
        assert got == [5, 5]


def test_callbacks_as_completed_and_asyncio_work():
    futures = [SendFuture() for _ in range(3)]
    called = []
    futures[0].add_done_callback(called.append)
    for number, future in enumerate(futures):
        future.set_result(number)
    assert called == [futures[0]]
    assert sorted(f.result() for f in concurrent.futures.as_completed(futures, 5)) == [0, 1, 2]

    async def scenario():
        early, late = SendFuture(), SendFuture()
        early.set_result(1)
        wrapped = [asyncio.wrap_future(early), asyncio.wrap_future(late)]
        threading.Thread(target=late.set_result, args=(2,)).start()
        return await asyncio.gather(*wrapped)
    assert asyncio.run(scenario()) == [1, 2]
