"""A queue is given up: its consumed messages are committed, and it is held once.

Rules M1 and M2 of mqcore/client/consume/member.py.
"""
from __future__ import annotations

import asyncio

from mqcore.client import AsyncPushConsumer, MessageQueue
from mqcore.client.consume import member
from tests.client.fake_broker import fake_cluster
from tests.namesrv.harness import settings_in
from tests.support.waiting import wait_until_async

QUEUE = MessageQueue("T", "broker-a", 0)
NEVER_S = 3600.0


def scenario_on(tmp_path, scenario):
    async def run():
        async with fake_cluster(settings_in(tmp_path), "broker-a") as (address, brokers):
            await brokers[0].create("T")
            for number in range(4):
                brokers[0].append("T", 0, b"%d" % number, {})
            await asyncio.wait_for(scenario(address, brokers[0]), 60)
    asyncio.run(run())


def consumer_of(address, listener, **options):
    return AsyncPushConsumer("CG", "T", listener, namesrv=address, start="earliest",
                             persist_interval=NEVER_S, **options)


def test_consumed_messages_are_committed_when_a_queue_is_given_up(tmp_path):                   # M2
    seen = []

    async def listener(message):
        seen.append(message.queue_offset)

    async def scenario(address, broker):
        async with consumer_of(address, listener) as consumer:
            await wait_until_async(lambda: len(seen) == 4, "all messages")
            assert not broker.committed.get(("CG", "T", 0))
            consumer._member.assign([])
            await wait_until_async(lambda: not consumer.assignment, "no queue")
            await wait_until_async(lambda: broker.committed.get(("CG", "T", 0)) == 4, "a commit")
            consumer._member.assign([QUEUE])
            await wait_until_async(lambda: consumer.assignment, "the queue again")
        assert seen == [0, 1, 2, 3]
    scenario_on(tmp_path, scenario)


def test_a_consumer_that_leaves_during_a_reset_commits_nothing_over_it(tmp_path):        # M2
    """The reset waits for a listener's call; the messages before that one are consumed."""
    hangs, end = asyncio.Event(), asyncio.Event()

    async def listener(message):
        if message.queue_offset == 3:
            hangs.set()
            await end.wait()

    async def scenario(address, broker):
        consumer = consumer_of(address, listener, concurrency=1)
        await consumer.start()
        await hangs.wait()
        reset = asyncio.create_task(consumer._member.restart_at({QUEUE: 1}, wait=NEVER_S))
        await wait_until_async(lambda: consumer._member.held[QUEUE].dropped, "the reset")
        await consumer._member.leave()
        assert not broker.committed.get(("CG", "T", 0))
        end.set()
        await reset
        assert broker.committed["CG", "T", 0] == 1
        await consumer.close()
    scenario_on(tmp_path, scenario)


def test_a_queue_whose_call_still_runs_is_not_taken_again(tmp_path, monkeypatch):        # M1
    monkeypatch.setattr(member, "LISTENER_END_S", 0.02)
    begun, going = [], asyncio.Event()

    async def listener(message):
        begun.append(message.queue_offset)
        await going.wait()

    async def scenario(address, broker):
        async with consumer_of(address, listener, orderly=True) as consumer:
            await wait_until_async(lambda: begun, "a call")
            group = consumer._member
            group.assign([])
            await wait_until_async(lambda: not group.held, "no queue")
            group.assign([QUEUE])
            await group._rebalance()
            assert group.held == {}
            going.set()
            await wait_until_async(lambda: len(begun) == 5, "all messages")
        assert begun == [0, 0, 1, 2, 3]
    scenario_on(tmp_path, scenario)
