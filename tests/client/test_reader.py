"""Reading without a group: the same against our broker and the stock one."""
from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from mqcore.client import (
    AsyncProducer,
    AsyncReader,
    ClientError,
    ClosedError,
    ConfigError,
    Message,
    MessageQueue,
    NoRouteError,
    Reader,
    ReadGap,
)
from mqcore.client.consume.pulling import committed_offset
from mqcore.client.core.cursor import NO_STOP, Cursor
from mqcore.client.read.reader import GROUP
from mqcore.client.roles.instance import ClientInstance
from mqcore.testing import MemoryBroker, broker
from mqcore.wire.codes import ResponseCode
from tests.client.test_columns import record
from tests.support.stock import SMALL_STOCK, require_stock, stock_cluster
from tests.support.waiting import wait_until_async

COUNT = 400
_topics = itertools.count()
Q = MessageQueue("T", "b", 3)


@pytest.fixture(scope="module", params=[
    "mqcore", "memory", pytest.param("stock", marks=pytest.mark.interop)])
def address(request, tmp_path_factory):
    if request.param == "memory":
        with MemoryBroker() as running:
            yield running.namesrv
        return
    if request.param == "mqcore":
        with broker() as running:
            yield running.namesrv
        return
    require_stock()
    with stock_cluster(tmp_path_factory.mktemp("stock"),
                       {**SMALL_STOCK, "enablePropertyFilter": "true"}, is_kept=False) as cluster:
        yield cluster.namesrv_addr


def of(address: str) -> dict[str, object]:
    """Options of a client that waits for a broker without a processor: a call that is late ends a
    connection on which nothing came, and with it all others."""
    return {"namesrv": address, "connect_timeout": 60.0, "call_timeout": 60.0}


def message(topic: str, number: int) -> Message:
    """Every seventh is compressed, has properties that are not ASCII."""
    odd = number % 7 == 0
    more = {"kind": "seventh", "größe": "ä"} if odd else {}
    return Message(
        topic, f"m{number}-" + "x" * (5000 if odd else 0), tags="abc"[number % 3],
        keys=[f"k{number}", "all"], flag=number,
        properties={"n": str(number), **more})


async def filled(address: str, count: int = COUNT) -> str:
    """A new topic with `count` messages in four queues."""
    topic = f"read{next(_topics)}"
    async with AsyncProducer("PG", **of(address)) as producer:
        await producer.send(message(topic, 0))
        for first in range(1, count, 50):
            await asyncio.gather(*(producer.send(message(topic, number))
                                   for number in range(first, min(first + 50, count))))
    await readable(address, topic, count)
    return topic


async def readable(address: str, topic: str, count: int) -> None:
    """Wait until the broker's queues have all messages: the stock one is a moment behind."""
    async with AsyncReader(topic, **of(address)) as reader:
        await some(reader, count)


@pytest.fixture(scope="module")
def topic(address):
    return asyncio.run(filled(address))


async def some(reader: AsyncReader, count: int) -> list:
    """Exactly `count` messages."""
    got = []
    while len(got) < count:
        more = await reader.read(count - len(got), timeout=60)
        assert more
        got += more
    return got


def places(messages):
    return Counter((one.queue, one.queue_offset) for one in messages)


async def all_of(topic, address, **options):
    async with AsyncReader(topic, **of(address), stop="end", **options) as reader:
        return [one async for one in reader]


@pytest.mark.slow
def test_every_message_comes_once_in_the_order_of_store_times(address, topic):
    got = asyncio.run(all_of(topic, address))
    assert sorted(int(one.properties["n"]) for one in got) == list(range(COUNT))
    assert [one.store_timestamp_ms for one in got] == sorted(one.store_timestamp_ms for one in got)
    for queue in {one.queue for one in got}:
        offsets = [one.queue_offset for one in got if one.queue == queue]
        assert offsets == list(range(len(offsets)))
    long = next(one for one in got if one.properties["n"] == "7")
    assert (len(long.body), long.keys, long.properties["größe"]) == (5003, ["k7", "all"], "ä")


def test_several_topics_are_read_together(address, topic):
    async def scenario():
        other = await filled(address, 20)
        async with AsyncReader([topic, other, topic], **of(address), stop="end") as reader:
            got = [one async for one in reader]
        assert Counter(one.topic for one in got) == {topic: COUNT, other: 20}
    asyncio.run(scenario())


def test_raw_batches_have_every_offset_once(address, topic):
    async def scenario():
        async with AsyncReader(topic, **of(address), stop="latest", pull_count=10) as reader:
            batches = [one async for one in reader.batches()]
            assert reader.positions() == {
                queue: max(one.next for one in batches if one.queue == queue)
                for queue in reader.queues}
        assert all(0 < len(one) <= 10 for one in batches)
        found = places(one for batch in batches for one in batch.messages())
        assert found == places(await all_of(topic, address))
        for batch in batches:
            assert batch.next - batch.begin == batch.count
            assert batch.messages()[0].store_timestamp_ms == batch.store_timestamp_ms
    asyncio.run(scenario())


def test_arrow_batches_say_what_messages_say(address, topic):
    async def scenario():
        async with AsyncReader(topic, **of(address), stop="end") as reader:
            batches = [one async for one in reader.batches(arrow=True, rows=100)]
        assert len(batches) > 1
        rows = []
        for batch in batches:
            batch.validate(full=True)
            rows += batch.to_pylist()
        messages = await all_of(topic, address)
        by_place = {(one.queue.queue_id, one.queue_offset): one for one in messages}
        assert len(rows) == len(by_place) == COUNT
        for row in rows:
            one = by_place[row["queue"], row["offset"]]
            assert (row["topic"], row["broker"]) == (topic, one.queue.broker_name)
            assert (row["body"], row["tags"], row["keys"]) == (one.body, one.tags, one.keys)
            assert dict(row["properties"]) == one.properties
            assert row["message_id"] == one.message_id
            assert row["store_time"].timestamp() * 1000 == pytest.approx(one.store_timestamp_ms)
            assert row["born_time"].timestamp() * 1000 == pytest.approx(one.born_timestamp_ms)
            assert (row["flag"], row["sys_flag"], row["log_position"], row["reconsume_times"]) == (
                one.flag, one.sys_flag, one.commit_log_offset, 0)
    asyncio.run(scenario())


@pytest.mark.parametrize(("options", "wanted"), [
    ({"filter": "a || c"}, lambda n: n % 3 != 1),
    ({"filter": "b"}, lambda n: n % 3 == 1),
    ({"sql": "kind = 'seventh'"}, lambda n: n % 7 == 0),
    ({"sql": "kind IS NULL AND TAGS IN ('a', 'c')"}, lambda n: n % 7 and n % 3 != 1),
    ({"filter": "none"}, lambda n: False),
])
def test_a_filter_leaves_out_the_others(address, topic, options, wanted, request):
    if "sql" in options and "memory" in request.node.name:
        pytest.skip("a broker in memory refuses SQL92")

    async def scenario():
        got = await all_of(topic, address, **options)
        numbers = sorted(int(one.properties["n"]) for one in got)
        async with AsyncReader(topic, **of(address), stop="end", **options) as reader:
            raw = [batch async for batch in reader.batches()]
            ends = await ends_of(address, topic)
            assert reader.positions() == ends
        assert sum(map(len, raw)) == len(got)
        assert numbers == [n for n in range(COUNT) if wanted(n)]
    asyncio.run(scenario())


async def ends_of(address, topic):
    async with AsyncReader(topic, **of(address), start="latest") as reader:
        return reader.positions()


def test_tags_with_an_equal_hash_are_told_apart(address):
    async def scenario():
        topic = f"read{next(_topics)}"
        async with AsyncProducer("PG", **of(address)) as producer:
            for tag in ("Aa", "BB", "Aa", "BB"):
                await producer.send(Message(topic, tag, tags=tag))
        await readable(address, topic, 4)
        got = await all_of(topic, address, filter="Aa")
        assert [one.body for one in got] == [b"Aa", b"Aa"]
    asyncio.run(scenario())


def test_times_part_what_was_stored(address, topic):
    async def scenario():
        everything = await all_of(topic, address)
        at_ms = everything[COUNT // 2].store_timestamp_ms
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        later = await all_of(topic, address, start=at)
        async with AsyncReader(topic, **of(address), stop=at) as reader:
            earlier = [one async for one in reader]
        assert places(later) == places(
            one for one in everything if one.store_timestamp_ms >= at_ms)
        assert places(earlier) == places(
            one for one in everything if one.store_timestamp_ms < at_ms)
        assert await all_of(topic, address, start=at + timedelta(days=1)) == []
        assert len(await all_of(topic, address, start=at - timedelta(days=1))) == COUNT
    asyncio.run(scenario())


def test_offsets_name_the_queues_and_ranges_to_read(address, topic):
    async def scenario():
        queue = min(await ends_of(address, topic))
        async with AsyncReader(topic, **of(address), start={queue: 10},
                               stop={queue: 25}) as reader:
            got = [one async for one in reader]
            assert reader.queues == [queue]
        assert [(one.queue, one.queue_offset) for one in got] == [
            (queue, offset) for offset in range(10, 25)]
    asyncio.run(scenario())


def test_a_reader_goes_on_where_another_one_was(address, topic):
    async def scenario():
        async with AsyncReader(topic, **of(address), stop="end") as reader:
            first = await some(reader, 150)
            positions = reader.positions()
        rest = await all_of(topic, address, start=positions)
        assert places([*first, *rest]) == places(await all_of(topic, address))
    asyncio.run(scenario())


def test_seek_goes_back_and_forth(address, topic):
    async def scenario():
        async with AsyncReader(topic, **of(address), stop="end") as reader:
            first = await some(reader, COUNT)
            assert await reader.read() == []
            queue = reader.queues[0]
            reader.seek({queue: 5})
            again = await some(reader, (await ends_of(address, topic))[queue] - 5)
            assert [one.queue_offset for one in again] == list(range(5, 5 + len(again)))
            assert await reader.read() == []
            assert {one.queue for one in again} == {queue}
            reader.seek(dict.fromkeys(reader.queues, 0))
            half = await some(reader, COUNT // 2)
            raw = [one async for batch in reader.batches() for one in batch.messages()]
            assert places([*half, *raw]) == places(first)
            with pytest.raises(ConfigError, match="none of the queues"):
                reader.seek({Q: 1})
    asyncio.run(scenario())


def test_messages_and_batches_may_take_turns(address, topic):
    async def scenario():
        got = []
        async with AsyncReader(topic, **of(address), stop="end", pull_count=10) as reader:
            async for batch in reader.batches():
                got += batch.messages()
                got += await reader.read(7, timeout=60)
        assert places(got) == places(await all_of(topic, address))
    asyncio.run(scenario())


def test_without_a_stop_it_waits_for_new_messages(address):
    async def scenario():
        topic = await filled(address, 10)
        producer = AsyncProducer("PG", **of(address))
        whole = AsyncReader(topic, **of(address))
        live = AsyncReader(topic, **of(address), start="latest")
        async with producer, whole:
            await some(whole, 10)               # they are there for readers, too
            await live.start()
            assert await live.read(timeout=0.05) == []
            for number in range(10, 14):
                sent = await producer.send(message(topic, number))
                for reader in (live, whole):
                    (one,) = await reader.read(timeout=60)
                    assert one.message_id == sent.message_id
            await live.close()
    asyncio.run(scenario())


def test_an_arrow_batch_of_the_live_end_does_not_wait_until_it_is_full(address):
    async def scenario():
        topic = await filled(address, 10)
        async with AsyncReader(topic, **of(address)) as reader:
            batches = reader.batches(arrow=True, linger=0.05)
            async with asyncio.timeout(20):
                rows = 0
                while rows < 10:
                    rows += (await anext(batches)).num_rows
            await batches.aclose()
    asyncio.run(scenario())


@pytest.mark.slow
def test_bodies_that_inflate_much_come_in_batches_that_do_not():
    """80 messages take some 400 KiB in the store, and 320 MiB when they are read."""
    async def scenario():
        with MemoryBroker() as running:
            topic = f"read{next(_topics)}"
            async with AsyncProducer("PG", namesrv=running.namesrv,
                                     compression_level=1) as producer:
                for number in range(80):
                    await producer.send(Message(topic, bytes(4 << 20), keys=str(number)), shard=0)
            async with AsyncReader(topic, namesrv=running.namesrv, stop="end") as reader:
                batches = [(one.num_rows, one.column("offset").to_pylist(),
                            one.column("body").nbytes)
                           async for one in reader.batches(arrow=True)]
        assert [offset for _, offsets, _ in batches for offset in offsets] == list(range(80))
        assert len(batches) > 1
        assert max(size for _, _, size in batches) <= 257 << 20
    asyncio.run(scenario())


def test_nothing_is_committed(address, topic):
    async def scenario():
        async with AsyncReader(topic, **of(address), stop="end") as reader:
            await some(reader, COUNT)
            instance = reader._instance
            assert isinstance(instance, ClientInstance)
            committed = {await committed_offset(instance, GROUP, queue) for queue in reader.queues}
            assert committed <= {None, 0}       # 0: the broker's answer for a queue from its start
    asyncio.run(scenario())


def test_a_lost_connection_costs_nothing(address, topic):
    async def scenario():
        got = []
        async with AsyncReader(topic, **of(address), stop="end", pull_count=5,
                               buffer_bytes=1) as reader:
            async for one in reader:
                got.append(one)
                if len(got) % 100 == 50:
                    for link in reader._engine._links.values():
                        link._transport.abort()
        assert len(got) == COUNT
        assert places(got) == places(await all_of(topic, address))
    asyncio.run(scenario())


def test_an_offset_beyond_the_end_is_an_error_that_seek_goes_past(address, topic):
    async def scenario():
        ends = await ends_of(address, topic)
        queue, end = min(ends.items())
        async with AsyncReader(topic, **of(address), start={queue: end + 7}) as reader:
            with pytest.raises(ReadGap, match="ends at") as error:
                await reader.read(timeout=60)
            assert (error.value.queue, error.value.begin, error.value.end) == (queue, end, end + 7)
            reader.seek({queue: end - 1})
            assert len(await reader.read(timeout=60)) == 1
    asyncio.run(scenario())


def test_a_topic_that_is_not_there_is_an_error(address):
    async def scenario():
        with pytest.raises(NoRouteError, match="no_such"):
            await AsyncReader("no_such", **of(address)).start()
    asyncio.run(scenario())


def test_the_blocking_reader_reads_the_same(address, topic):
    with Reader(topic, **of(address), stop="end") as reader:
        first = [next(iter(reader)) for _ in range(10)]
        positions = reader.positions()
        rest = list(reader)
    with Reader(topic, **of(address), stop="end", start=positions) as reader:
        assert places(rest) == places(reader)
    assert len(first) + len(rest) == COUNT
    with Reader(topic, **of(address), stop="end") as reader:
        some = next(reader.batches())
        assert reader.positions()[some.queue] == some.next
        arrow = list(reader.batches(arrow=True))
        assert len(some) + sum(one.num_rows for one in arrow) == COUNT
        reader.seek({some.queue: some.begin})
        assert sum(len(one) for one in reader.batches()) >= len(some)
        assert reader.read() == []
    with pytest.raises(ClosedError):
        reader.read()


def test_a_namespace_and_a_broker_that_makes_no_groups_are_no_hindrance():
    async def scenario(address):
        options = {"namesrv": address, "namespace": "shop"}
        async with AsyncProducer("PG", **options) as producer:
            await producer.send(Message("T", "x"))
        at = datetime.now(UTC) - timedelta(minutes=1)
        async with AsyncReader("T", start=at, **options) as reader:
            (one,) = await reader.read(timeout=60)
            assert (one.topic, one.queue.topic, one.body) == ("T", "T", b"x")
        assert len(await all_of("shop%T", address)) == 1

    with MemoryBroker({"broker.auto_create_group": False}) as running:
        asyncio.run(scenario(running.namesrv))


# -- what has no need of a broker -----------------------------------------------------------------


@pytest.mark.parametrize(("options", "said"), [
    ({"topics": []}, "topics"), ({"topics": "a b"}, "topics"), ({"start": "begin"}, "start"),
    ({"stop": 5}, "stop"), ({"start": {}}, "start"), ({"start": {Q: -1}}, "start"),
    ({"filter": "||"}, "filter"), ({"sql": ""}, "sql"), ({"filter": "a", "sql": "b = 1"}, "sql"),
    ({"pull_count": 0}, "pull_count"), ({"timeout": 0}, "timeout"), ({"grop": "g"}, "group"),
])
def test_an_option_that_cannot_be_is_named(options, said):
    async def scenario():
        with pytest.raises(ConfigError, match=said):
            AsyncReader(**{"topics": "T", "namesrv": "127.0.0.1:1", **options})
    asyncio.run(scenario())


def cursor(begin: int = 5, stop: int = NO_STOP, *, whole: bool = True) -> Cursor:
    return Cursor(Q, "T", begin, stop, whole=whole, tags=None)


def found(*offsets: int) -> bytes:
    return b"".join(map(record, offsets))


OK, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize(("answer", "gap"), [
    ((OK, 12, 0, 20, found(8, 9)), (5, 8)),             # holes among what was found
    ((RETRY, 9, 0, 20, b""), (5, 9)),                   # removed meanwhile
    ((NOT_FOUND, 9, 0, 20, b""), (5, 9)),
    ((MOVED, 9, 9, 20, b""), (5, 9)),                   # retention went past us
    ((NOT_FOUND, 5, 7, 7, b""), (5, 7)),
    ((MOVED, 3, 0, 3, b""), (3, 5)),                    # beyond the end
])
def test_missing_offsets_are_named_and_nothing_moves_on(answer, gap):
    one = cursor()
    with pytest.raises(ReadGap) as error:
        one.accept(*answer)
    assert (error.value.begin, error.value.end, error.value.queue) == (*gap, Q)
    assert one.position == 5


@pytest.mark.parametrize(("sql", "said"), [
    ("amount >", "sql: SQL92 expression, position 8: expected"),
    ("amount = 'x", "position 9"),
    ("", "sql"),
])
def test_an_expression_that_brokers_refuse_is_refused_at_the_call(sql, said):
    with pytest.raises(ConfigError, match=said):
        Reader("T", sql=sql)


def test_how_long_an_expression_may_be_is_left_to_the_broker():
    Reader("T", sql=" OR ".join(f"a = {n}" for n in range(5_000)))


@pytest.mark.parametrize("first", [7, 8])
def test_what_begins_at_or_behind_the_stop_leaves_a_gap_before_it(first):
    one = cursor(stop=7)
    with pytest.raises(ReadGap, match="5 to 6") as error:
        one.accept(OK, first + 1, first, 20, found(first))
    assert (error.value.begin, error.value.end) == (5, 7)
    one.seek(error.value.end)
    assert one.is_done


@pytest.mark.parametrize("whole", [True, False])
def test_messages_that_are_promised_and_not_there_are_an_error(whole):
    with pytest.raises(ClientError, match="none of offset 5"):
        cursor(whole=whole).accept(OK, 5, 0, 20, b"")


def test_a_filter_that_finds_nothing_before_the_stop_is_done():
    one = cursor(stop=7, whole=False)
    assert one.accept(OK, 9, 0, 20, found(8)) is None
    assert one.is_done


def test_what_lies_before_a_gap_comes_first():
    one = cursor()
    assert one.accept(OK, 10, 0, 20, found(5, 6, 9)).next == 7
    with pytest.raises(ReadGap, match="7 to 8"):
        one.accept(OK, 10, 0, 20, found(9))


def test_a_filter_leaves_holes_but_not_before_what_is_there():
    one = cursor(whole=False)
    assert one.accept(OK, 12, 0, 20, found(8, 9)).next == 12
    one.take()
    assert one.accept(RETRY, 15, 0, 20, b"") is None
    assert one.position == 15
    with pytest.raises(ReadGap, match="15 to 17"):
        one.accept(MOVED, 18, 18, 20, b"")


def test_a_stop_cuts_what_was_found():
    one = cursor(stop=7)
    assert one.accept(OK, 9, 0, 20, found(5, 6, 7, 8)).count == 2
    assert (one.is_pulled, one.is_done, one.position) == (True, False, 5)
    one.take()
    assert (one.is_done, one.position) == (True, 7)


@pytest.mark.parametrize("body", [b"", b"nonsense", found(5)[:-1], found(4), found(5, 5)])
def test_an_answer_that_makes_no_sense_is_an_error(body):
    one = cursor()
    with pytest.raises(ClientError):
        one.accept(OK, 6, 0, 20, body)
    assert one.position == 5


def test_a_reader_that_is_closed_while_it_waits_says_so():
    async def scenario(address):
        topic = await filled(address, 1)
        reader = AsyncReader(topic, **of(address), start="latest")
        await reader.start()
        waiting = asyncio.create_task(reader.read())
        await wait_until_async(lambda: reader._engine._links, "a connection")
        await reader.close()
        with pytest.raises(ClosedError):
            await waiting
    with broker() as running:
        asyncio.run(scenario(running.namesrv))
