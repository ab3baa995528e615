"""Our push consumer on both brokers: shares, order, retries, dead letters, and what it is asked."""
from __future__ import annotations

import asyncio
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    BrokerError,
    ConsumeContext,
    ConsumeStatus,
    Message,
    PushConsumer,
    ReceivedMessage,
    Reject,
    Retry,
    Sql92,
)
from mqcore.client.consume.hooked import CallResult, ConsumeHookContext, FilterHookContext
from mqcore.client.core.offsets import parse_offsets
from mqcore.wire import fastjson
from tests.interop.ask import ask, committed_offset, group_members
from tests.interop.conftest import Cluster
from tests.interop.consuming import (
    QUEUES,
    Notes,
    consume_directly,
    fresh,
    names,
    run,
    running_info,
    send,
)
from tests.interop.members import first_commit
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.timeout(300)


def dead_letter_count(cluster: Cluster, group: str) -> int:
    answer = ask(cluster.broker_addr, 30, {"topic": f"%DLQ%{group}", "queueId": "0"})
    return int((answer.ext or {}).get("offset") or 0) if answer.code == 0 else 0


def committed(cluster: Cluster, group: str, topic: str) -> int:
    return sum(committed_offset(cluster.broker_addr, group, topic, queue) or 0
               for queue in range(QUEUES))


# -- which messages --------------------------------------------------------------------------------


def test_tags_and_properties_choose_and_offsets_are_committed_at_the_end(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "filters")
    first_commit(cluster.broker_addr, group, topic)
    by_tag, by_sql = Notes(), Notes()

    async def scenario() -> None:
        await send(cluster, topic, names("a", 8), tags="A", properties={"size": "3"})
        await send(cluster, topic, names("b", 8), tags="B", properties={"size": "30"})
        await send(cluster, topic, names("c", 8), tags="C", properties={"size": "300"})
        options = {"namesrv": cluster.namesrv_addr, "start": "earliest"}
        async with (
            AsyncPushConsumer(group, {topic: "A || C"}, by_tag.listen, **options),
            AsyncPushConsumer(f"{group}-sql", topic, by_sql.listen,
                              filter=Sql92("size BETWEEN 10 AND 100"), **options),
        ):
            await wait_until_async(lambda: len(by_tag.keys) >= 16 and len(by_sql.keys) >= 8, "all")

    run(scenario())
    assert sorted(by_tag.keys) == sorted(names("a", 8) + names("c", 8))
    assert sorted(by_sql.keys) == names("b", 8)
    wait_until(lambda: committed(cluster, group, topic) == 24, "offsets over all messages")


def test_a_filter_that_a_broker_refuses_fails_the_start(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "refused")

    async def scenario() -> None:
        consumer = AsyncPushConsumer(group, topic, Notes().listen, filter=Sql92("size >"),
                                     trace=True, namesrv=cluster.namesrv_addr)
        around = asyncio.all_tasks()
        with pytest.raises(BrokerError):
            await consumer.start()
        assert not consumer.is_running
        assert asyncio.all_tasks() == {asyncio.current_task(), *around}

    run(scenario())


def test_a_group_starts_at_a_time(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "time")
    notes = Notes()

    async def scenario() -> None:
        await send(cluster, topic, names("early", 8))
        await asyncio.sleep(1.1)
        at = datetime.now(UTC)
        await send(cluster, topic, names("late", 8))
        async with AsyncPushConsumer(group, topic, notes.listen, start=at,
                                     namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: set(notes.keys) >= set(names("late", 8)), "late ones")

    run(scenario())
    # A broker answers 0 for a new group of a young topic (client.md 4.7): then all come.
    assert set(notes.keys) in (set(names("late", 8)), {*names("late", 8), *names("early", 8)})


# -- listeners -------------------------------------------------------------------------------------


def test_what_fails_comes_again_and_ends_in_the_dead_letters(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "retries")
    tries: list[tuple[str, int]] = []

    async def listen(message: ReceivedMessage) -> None:
        tries.append((message.keys[0], message.reconsume_times))
        assert message.topic == topic
        if message.keys[0] == "reject":
            raise Reject
        if message.keys[0] == "poison" or message.reconsume_times == 0:
            raise Retry(delay_level=1) if message.keys[0] == "retry" else RuntimeError("not yet")

    async def scenario() -> None:
        await send(cluster, topic, ["retry", "poison", "reject", "later"])
        async with AsyncPushConsumer(group, topic, listen, start="earliest", max_retries=2,
                                     namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: dead_letter_count(cluster, group) == 2
                                   and ("later", 1) in tries, "two dead letters")

    run(scenario())
    assert sorted(tries) == [("later", 0), ("later", 1), ("poison", 0), ("poison", 1),
                             ("poison", 2), ("reject", 0), ("retry", 0), ("retry", 1)]


def test_a_batch_is_done_up_to_where_the_listener_says(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "batch")
    calls: list[list[str]] = []

    async def listen(messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeStatus:
        calls.append([message.keys[0] for message in messages])
        if len(messages) > 1:
            context.ack_count, context.delay_level = 1, 1
        return ConsumeStatus.SUCCESS

    async def scenario() -> None:
        await send(cluster, topic, names("k", 4), queue=0)
        async with AsyncPushConsumer(group, topic, listen, start="earliest", batch=4,
                                     namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: sum(map(len, calls)) >= 7, "three again")

    run(scenario())
    assert calls[0] == names("k", 4)
    assert sorted(key for call in calls[1:] for key in call)[:3] == ["k1", "k2", "k3"]


def test_a_listener_that_hangs_loses_its_message_to_a_retry_and_its_place(
    cluster: Cluster, caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = fresh(cluster, "hangs")
    first_commit(cluster.broker_addr, group, topic)
    seen: list[tuple[str, int]] = []

    async def listen(message: ReceivedMessage) -> None:
        seen.append((message.keys[0], message.reconsume_times))
        if message.keys[0] == "stuck" and message.reconsume_times == 0:
            await asyncio.Event().wait()

    async def scenario() -> None:
        await send(cluster, topic, ["stuck", *names("k", 8)])
        async with AsyncPushConsumer(group, topic, listen, start="earliest", concurrency=1,
                                     handler_timeout=2.0, namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: ("stuck", 1) in seen and len(seen) == 10, "all")

    with caplog.at_level(logging.WARNING, "mqcore.client"):
        run(scenario())
    told = [record.getMessage() for record in caplog.records]
    assert any("listen works on" in line and "after 2.0 s it comes again" in line for line in told)
    assert any("for more than 2.0 s" in line for line in told)
    assert committed(cluster, group, topic) == 9


def test_a_listener_that_blocks_the_loop_is_named(
    cluster: Cluster, caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = fresh(cluster, "blocks")
    seen: list[str] = []

    async def blocking_one(message: ReceivedMessage) -> None:
        threading.Event().wait(1.8)
        seen.append(message.keys[0])

    async def scenario() -> None:
        await send(cluster, topic, ["k"])
        async with AsyncPushConsumer(group, topic, blocking_one, start="earliest",
                                     namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: "blocked the event loop" in caplog.text, "a warning")

    with caplog.at_level(logging.WARNING, "mqcore.client"):
        run(scenario())
    assert "blocking_one blocked the event loop" in caplog.text


def test_a_blocking_consumer_calls_its_listener_in_threads(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "threads")
    first_commit(cluster.broker_addr, group, topic)
    threads: set[str] = set()
    together = threading.Barrier(4)
    keys: list[str] = []

    def listen(message: ReceivedMessage) -> None:
        if not keys:
            together.wait(30)           # four calls at a time, or none gets any further
        threads.add(threading.current_thread().name)
        keys.append(message.keys[0])

    run(send(cluster, topic, names("k", 40)))
    with PushConsumer(group, topic, listen, start="earliest", concurrency=4,
                      namesrv=cluster.namesrv_addr) as consumer:
        wait_until(lambda: len(keys) >= 40, "all messages")
        assert len([q for q in consumer.assignment if q.topic == topic]) == QUEUES
    assert sorted(keys) == sorted(names("k", 40))
    assert 1 < len(threads) <= 4
    wait_until(lambda: committed(cluster, group, topic) == 40, "offsets over all messages")


# -- order -----------------------------------------------------------------------------------------


def test_an_orderly_listener_sees_each_queue_in_order_and_failures_hold_it_up(
    cluster: Cluster,
) -> None:
    topic, group = fresh(cluster, "orderly")
    first_commit(cluster.broker_addr, group, topic)
    seen: dict[int, list[str]] = {}
    tries: list[int] = []

    async def listen(message: ReceivedMessage) -> None:
        if message.keys[0] == "q1-2":
            tries.append(message.reconsume_times)
            raise RuntimeError("never")
        await asyncio.sleep(0.001)
        seen.setdefault(message.queue.queue_id, []).append(message.keys[0])

    async def scenario() -> None:
        for queue in range(2):
            await send(cluster, topic, names(f"q{queue}-", 20), queue=queue)
        async with AsyncPushConsumer(group, topic, listen, start="earliest", orderly=True,
                                     suspend=0.1, max_retries=2, namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: sum(map(len, seen.values())) == 39, "all but one")
            await wait_until_async(lambda: dead_letter_count(cluster, group) == 1, "a dead letter")

    run(scenario())
    assert seen[0] == names("q0-", 20)
    assert seen[1] == [key for key in names("q1-", 20) if key != "q1-2"]
    assert tries == [0, 1, 2]
    wait_until(lambda: committed(cluster, group, topic) == 40, "offsets over all messages")


def test_orderly_members_take_over_each_other_s_queues_without_a_gap(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "handover")
    seen: dict[int, list[str]] = {}

    async def listen(message: ReceivedMessage) -> None:
        seen.setdefault(message.queue.queue_id, []).append(message.keys[0])
        await asyncio.sleep(0.002)

    def member() -> AsyncPushConsumer:
        return AsyncPushConsumer(group, topic, listen, start="earliest", orderly=True,
                                 namesrv=cluster.namesrv_addr)

    async def scenario() -> None:
        async with member():
            await send(cluster, topic, names("a", 200))
            async with member() as second:
                await send(cluster, topic, names("b", 200))
                await wait_until_async(
                    lambda: [q for q in second.assignment if q.topic == topic], "a share")
            await send(cluster, topic, names("c", 100))
            await wait_until_async(lambda: sum(map(len, seen.values())) >= 500, "all")

    run(scenario())
    for keys in seen.values():
        first_time = list(dict.fromkeys(keys))
        order = sorted(first_time, key=lambda key: (key[0], int(key[1:])))
        assert first_time == order


# -- broadcasting ----------------------------------------------------------------------------------


def test_broadcasting_members_all_get_everything_and_go_on_from_their_files(
    cluster: Cluster, tmp_path: Path,
) -> None:
    topic, group = fresh(cluster, "broadcast")

    async def life(name: str, wanted: int) -> list[str]:
        notes = Notes()
        consumer = AsyncPushConsumer(
            group, topic, notes.listen, start="earliest", broadcast=True, instance_name=name,
            offsets_folder=tmp_path, namesrv=cluster.namesrv_addr)
        async with consumer:
            await wait_until_async(lambda: len(notes.keys) >= wanted, "messages")
        return notes.keys

    async def scenario() -> None:
        await send(cluster, topic, names("a", 8))
        both = await asyncio.gather(life("one", 8), life("two", 8))
        assert [sorted(keys) for keys in both] == [names("a", 8)] * 2
        await send(cluster, topic, names("b", 8))
        assert sorted(await life("one", 8)) == names("b", 8)

    run(scenario())
    files = list(tmp_path.glob(f"*@one/{group}/offsets.json"))
    assert len(files) == 1
    assert sum(parse_offsets(files[0].read_bytes()).values()) == 16
    assert committed(cluster, group, topic) == 0


# -- what it is asked ------------------------------------------------------------------------------


def test_a_member_tells_of_itself_and_consumes_directly(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "info")
    notes = Notes()

    async def listen(message: ReceivedMessage) -> None:
        await notes.listen(message)
        if len(notes.keys) > 1:
            raise RuntimeError("the second time")

    async def scenario() -> None:
        await send(cluster, topic, ["k"], queue=2)
        async with AsyncPushConsumer(group, topic, listen, filter="*", start="earliest",
                                     namesrv=cluster.namesrv_addr) as consumer:
            await wait_until_async(lambda: notes.keys, "a message")
            body = await asyncio.to_thread(running_info, cluster, group, consumer.client_id, True)
            told = fastjson.loads(body)
            assert told["properties"]["PROP_CONSUMEORDERLY"] == "false"
            for word in ("puller.py", "running_info", "MainThread"):
                assert word in told["jstack"]
            assert {one["topic"] for one in told["subscriptionSet"]} == {topic, f"%RETRY%{group}"}
            assert len([key for key in told["mqTable"] if key.as_dict()["topic"] == topic]) == 4
            result = await asyncio.to_thread(
                consume_directly, cluster, group, consumer.client_id,
                notes.messages[0].offset_message_id)
            assert result["consumeResult"] == "CR_THROW_EXCEPTION"
            assert "the second time" in result["remark"]
            status = await asyncio.to_thread(
                ask, cluster.broker_addr, 223, {"topic": topic, "group": group, "clientAddr": ""})
            (table,) = fastjson.loads(status.body)["consumerTable"].values()
            assert sum(table.values()) == 1

    run(scenario())
    assert [m.queue.queue_id for m in notes.messages] == [2, 2]


@pytest.mark.slow
def test_offsets_are_reset_in_running_members(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "reset")
    notes = Notes()

    async def scenario() -> None:
        await send(cluster, topic, names("k", 8))
        async with AsyncPushConsumer(group, topic, notes.listen, start="earliest",
                                     namesrv=cluster.namesrv_addr) as consumer:
            await wait_until_async(lambda: len(notes.keys) == 8, "the first time")
            await wait_until_async(lambda: committed(cluster, group, topic) == 8, "offsets")
            answer = await asyncio.to_thread(ask, cluster.broker_addr, 222, {
                "topic": topic, "group": group, "timestamp": "0", "isForce": "true"})
            assert answer.code == 0, answer.remark
            await wait_until_async(lambda: len(notes.keys) == 16, "the second time")
            await wait_until_async(lambda: committed(cluster, group, topic) == 8, "offsets again")
            await consumer.reset_offsets(0.0)
            await wait_until_async(lambda: len(notes.keys) == 24, "the third time")

    run(scenario())
    assert sorted(notes.keys) == sorted(names("k", 8) * 3)


def test_a_suspended_member_pulls_nothing_until_it_goes_on(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "suspend")
    notes = Notes()

    async def scenario() -> None:
        async with AsyncPushConsumer(group, topic, notes.listen, start="earliest",
                                     namesrv=cluster.namesrv_addr) as consumer:
            await send(cluster, topic, ["before"])
            await wait_until_async(lambda: notes.keys == ["before"], "a message")
            await wait_until_async(lambda: sum(
                queue.topic == topic for queue in consumer.assignment) == QUEUES, "all queues")
            await asyncio.sleep(0.2)        # ... and a pull of each is held
            consumer.suspend()
            for queue in range(QUEUES):
                await send(cluster, topic, [f"held{queue}"], queue=queue)
            await wait_until_async(lambda: len(notes.keys) == 1 + QUEUES, "the held pulls")
            await send(cluster, topic, names("k", 40))
            await asyncio.sleep(0.5)
            assert len(notes.keys) == 1 + QUEUES
            consumer.resume()
            await wait_until_async(lambda: len(notes.keys) == 41 + QUEUES, "all")

    run(scenario())


def test_other_subscriptions_of_the_same_group_are_warned_of(
    cluster: Cluster, caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group = fresh(cluster, "others")

    async def scenario() -> None:
        options = {"namesrv": cluster.namesrv_addr}
        async with AsyncPushConsumer(group, topic, Notes().listen, filter="A", **options) as first:
            await wait_until_async(
                lambda: group_members(cluster.broker_addr, group) == [first.client_id], "a member")
            async with AsyncPushConsumer(group, topic, Notes().listen, filter="A", **options):
                assert "other subscriptions" not in caplog.text
            async with AsyncPushConsumer(group, topic, Notes().listen, filter="B", **options):
                assert first.client_id in caplog.text

    with caplog.at_level(logging.WARNING, "mqcore.client"):
        run(scenario())
    assert "in use with other subscriptions" in caplog.text


def test_a_namespace_parts_topics_and_groups(cluster: Cluster) -> None:
    topic, group = fresh(cluster, "namespace")
    plain, spaced = Notes(), Notes()

    async def scenario() -> None:
        async with AsyncProducer("py-senders", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message(topic, b"x", keys=["plain"]))
            await producer.send(Message(f"ns%{topic}", b"x", keys=["spaced"]))

        async def listen(message: ReceivedMessage) -> None:
            await spaced.listen(message)
            if message.reconsume_times == 0:
                raise Retry(delay_level=1)
        options = {"namesrv": cluster.namesrv_addr, "start": "earliest"}
        async with (AsyncPushConsumer(group, topic, plain.listen, **options),
                    AsyncPushConsumer(group, topic, listen, namespace="ns", **options)):
            await wait_until_async(lambda: len(spaced.keys) == 2 and plain.keys, "both")

    run(scenario())
    assert (plain.keys, spaced.keys) == (["plain"], ["spaced"] * 2)
    assert {message.topic for message in spaced.messages} == {topic}


# -- hooks and traces ------------------------------------------------------------------------------


class Watcher:
    """A hook that notes what it is told, and takes messages out."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, CallResult | None]] = []
        self.pulled = 0

    def filter_messages(self, context: FilterHookContext) -> None:
        self.pulled += len(context.messages)
        context.messages[:] = [one for one in context.messages if one.keys != ["unwanted"]]

    def before_consume(self, context: ConsumeHookContext) -> None:
        self.calls.append((context.messages[0].keys[0], context.result))

    def after_consume(self, context: ConsumeHookContext) -> None:
        self.calls.append((context.messages[0].keys[0], context.result))


@pytest.mark.parametrize("in_thread", [False, True])
def test_hooks_see_every_call_and_traces_tell_of_it(cluster: Cluster, in_thread: bool) -> None:
    topic, group = fresh(cluster, "hooks")
    first_commit(cluster.broker_addr, group, topic)
    traces, _ = fresh(cluster, "traces", 1)
    watcher, seen = Watcher(), Notes()

    async def listen(message: ReceivedMessage) -> None:
        await seen.listen(message)
        if message.keys == ["fails"]:
            raise Retry(delay_level=18)

    def in_a_thread(message: ReceivedMessage) -> None:
        asyncio.run(listen(message))

    async def scenario() -> None:
        await send(cluster, topic, ["good", "unwanted", "fails"])
        consumer = AsyncPushConsumer(
            group, topic, in_a_thread if in_thread else listen, start="earliest",
            run_in_thread=in_thread, trace=True, trace_topic=traces,
            namesrv=cluster.namesrv_addr)
        consumer.add_hook(watcher)
        async with consumer:
            await wait_until_async(lambda: len(watcher.calls) == 4 and watcher.pulled == 3,
                                   "two calls, and a message that is filtered out")
        told = Notes()
        async with AsyncPushConsumer(f"{group}-x", traces, told.listen, start="earliest",
                                     namesrv=cluster.namesrv_addr):
            def records() -> list[list[str]]:
                text = "".join(message.text() for message in told.messages)
                return [record.split("\x01") for record in text.split("\x02") if record]
            await wait_until_async(lambda: len(records()) == 4, "four records")
        after = {record[5]: (record[4], record[6]) for record in records()
                 if record[0] == "SubAfter"}
        before = {record[7]: record[3] for record in records() if record[0] == "SubBefore"}
        assert after == {"good": ("true", "0"), "fails": ("false", "2")}
        assert before == {"good": group, "fails": group}

    run(scenario())
    assert sorted(seen.keys) == ["fails", "good"]
    assert sorted(watcher.calls, key=str) == sorted([
        ("good", None), ("good", CallResult.SUCCESS), ("fails", None),
        ("fails", CallResult.EXCEPTION)], key=str)
    wait_until(lambda: committed(cluster, group, topic) == 3, "offsets over all messages")
