"""Our own producers beside Java's, against the brokers of conftest: every way of sending."""
from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict

import pytest

from mqcore.client import (
    AsyncProducer,
    AsyncTransactionProducer,
    Compression,
    LocalTransactionState,
    Message,
    Producer,
    Reader,
    RequestTimeout,
    SendResult,
    SendStatus,
    TransactionProducer,
    create_reply,
)
from tests.interop.conftest import Cluster
from tests.interop.messages import Line, message
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client
from tests.support.waiting import wait_until

QUEUES = 4
COMMIT, ROLLBACK = LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK
UNKNOWN = LocalTransactionState.UNKNOWN
READ_S = 20.0
CHECKED_S = 15.0                # a check comes after 1 s, and every second


@pytest.fixture(scope="module")
def module_programs(lasting_programs: Programs) -> Programs:
    require_client("java")
    return lasting_programs


def topic_of(programs: Programs, cluster: Cluster, name: str) -> str:
    topic = f"py-{name}-{cluster.kind}"
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=QUEUES)
    return topic


def stored(cluster: Cluster, topic: str, count: int = 0) -> list[tuple[int, int, bytes]]:
    """Queue, offset and body of all that can be read in a topic, once there are `count`: a message
    that is stored has its place in its queue a moment later."""
    found: list[tuple[int, int, bytes]] = []

    def read() -> bool:
        with Reader(topic, namesrv=cluster.namesrv_addr, start="earliest", stop="end") as reader:
            found[:] = [(m.queue.queue_id, m.queue_offset, m.body) for m in reader]
        return len(found) >= count
    wait_until(read, f"{count} messages in {topic}", timeout_s=READ_S)
    return sorted(found)


def received(programs: Programs, cluster: Cluster, topic: str, count: int) -> list[Line]:
    return programs.consume("java", cluster.namesrv_addr, topic, f"{topic}-readers",
                            count).finish()


def test_java_receives_what_was_sent_in_every_way(
    module_programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(module_programs, cluster, "ways")
    text = "snow ☃ and more " * 1_000
    with Producer("PG-py", namesrv=cluster.namesrv_addr, batch_count=10) as producer:
        results = [
            producer.send(Message(topic, "plain", tags="A", keys=["k1", "k2"], flag=7,
                                  properties={"colour": "grün ☃"})),
            producer.send(Message(topic, text)),
            producer.send(Message(topic, "delayed", delay_level=1)),
            *(future.result(20) for future in [
                producer.send_soon(Message(topic, f"soon-{n}")) for n in range(20)]),
            *producer.send_many([Message(topic, f"many-{n}", properties={"n": str(n)})
                                 for n in range(35)]),
        ]
        batch = producer.send_batch([Message(topic, f"batch-{n}") for n in range(3)])
        producer.send_oneway(Message(topic, "oneway"))
        lines = received(module_programs, cluster, topic, 3 + 20 + 35 + 3 + 1)
    ids = {result.message_id for result in results} | set(batch.message_id.split(","))
    assert len({line["msgId"] for line in lines}) == len(lines) == 62
    assert ids <= {line["msgId"] for line in lines}
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    plain = next(line for line in lines if line["msgId"] == results[0].message_id)
    assert (plain["tags"], plain["keys"]) == ("A", "k1 k2")
    assert plain["properties"]["colour"] == "grün ☃"
    found = {(queue, offset): body for queue, offset, body in stored(cluster, topic, 62)}
    for n, result in enumerate(results[3:23]):
        assert found[result.queue.queue_id, result.queue_offset] == f"soon-{n}".encode()
    for n, result in enumerate(results[23:]):
        assert found[result.queue.queue_id, result.queue_offset] == f"many-{n}".encode()


def test_shards_share_their_queues_with_javas_selector_and_stay_in_order(
    module_programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(module_programs, cluster, "shards")
    shards = ["order-1001", "polygenelubricants", "你好", "x", ""]
    java = [message(f"java-{n}", "x", shardKey=shard) for n, shard in enumerate(shards)]
    lines = module_programs.produce("java", cluster.namesrv_addr, topic, java).finish()
    queue_of = {shard: line["queueId"] for shard, line in zip(shards, lines, strict=True)}

    async def send() -> list[SendResult]:
        async with AsyncProducer("PG-py", namesrv=cluster.namesrv_addr, linger=0.002) as producer:
            soon = [producer.send_soon(Message(topic, f"{shard}/{n}"), shard=shard)
                    for n in range(100) for shard in shards]
            await asyncio.gather(*soon)
            return await producer.send_many(
                [Message(topic, f"{shard}/{n}", keys=shard or "-")
                 for n in range(100, 200) for shard in shards],
                shard=lambda m: m.body.decode().partition("/")[0])
    asyncio.run(send())
    seen: dict[str, list[int]] = defaultdict(list)
    for queue, _, body in stored(cluster, topic, len(java) + 200 * len(shards)):
        shard, found, number = body.decode().partition("/")
        if found:
            assert queue == queue_of[shard]
            seen[shard].append(int(number))
    assert seen == {shard: list(range(200)) for shard in shards}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Compression))
def test_compressed_bodies_are_read_by_java(
    module_programs: Programs, cluster: Cluster, kind: Compression,
) -> None:
    if kind is not Compression.ZLIB:
        pytest.importorskip("lz4" if kind is Compression.LZ4 else "zstandard")
    topic = topic_of(module_programs, cluster, f"compressed-{kind.value}")
    with Producer("PG-py", namesrv=cluster.namesrv_addr, compression=kind) as producer:
        sent = producer.send(Message(topic, "words and words " * 2_000))
    (line,) = received(module_programs, cluster, topic, 1)
    assert line["msgId"] == sent.message_id
    assert line["sysFlag"] & 1


# -- transactions ---------------------------------------------------------------------------------


def visible(cluster: Cluster, topic: str) -> set[bytes]:
    return {body for _, _, body in stored(cluster, topic)}


def test_a_transaction_is_seen_if_its_context_is_left_well_or_the_check_commits(
    module_programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(module_programs, cluster, "transactions")
    asked: dict[bytes, int] = defaultdict(int)

    def check(found: object) -> LocalTransactionState:
        body = found.body                                   # type: ignore[attr-defined]
        asked[body] += 1
        if body == b"later" and asked[body] == 1:
            return UNKNOWN
        if body == b"failing" and asked[body] == 1:
            raise RuntimeError("the database is away")
        return ROLLBACK if body == b"open, rolled back" else COMMIT

    with TransactionProducer(f"PG-{topic}", check=check, namesrv=cluster.namesrv_addr,
                             topics=[topic]) as producer:
        with producer.transaction(Message(topic, "left well", delay_level=3)) as tx:
            assert tx.result.status is SendStatus.SEND_OK
            assert visible(cluster, topic) == set()
        with producer.transaction(Message(topic, "rolled back")) as tx:
            tx.rollback()
        for body in ("open, committed", "open, rolled back", "later", "failing"):
            with pytest.raises(KeyError), producer.transaction(Message(topic, body)):
                raise KeyError(body)
        states = [producer.send_in_transaction(Message(topic, f"java way {state.name}"),
                                               lambda m, arg: arg, state)
                  for state in (COMMIT, ROLLBACK)]
        assert [each.local_state for each in states] == [COMMIT, ROLLBACK]
        assert states[0].offset_message_id
        assert states[0].transaction_id == states[0].message_id

        def failing(sent: Message, arg: object) -> LocalTransactionState:
            raise OSError("no")
        odd = producer.send_in_transaction(Message(topic, "raising"), failing)
        assert (odd.local_state, type(odd.error)) == (UNKNOWN, OSError)
        expected = {b"left well", b"open, committed", b"later", b"failing", b"raising",
                    b"java way COMMIT"}
        wait_until(lambda: visible(cluster, topic) == expected, "the committed ones",
                   timeout_s=4 * CHECKED_S)
    assert dict(asked) == {b"open, committed": 1, b"open, rolled back": 1, b"later": 2,
                           b"failing": 2, b"raising": 1}


def test_another_producer_of_the_group_answers_for_one_that_is_gone(
    module_programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(module_programs, cluster, "orphans")
    group = f"PG-{topic}"

    async def scenario() -> None:
        first = AsyncTransactionProducer(group, check=lambda m: UNKNOWN,
                                         namesrv=cluster.namesrv_addr)
        async with first:
            with pytest.raises(KeyError):
                async with first.transaction(Message(topic, "orphan", keys="row-7")):
                    raise KeyError
        done = asyncio.Event()

        async def check(found: object) -> LocalTransactionState:
            assert found.keys == ["row-7"]                  # type: ignore[attr-defined]
            done.set()
            return COMMIT

        async with AsyncTransactionProducer(group, check=check, namesrv=cluster.namesrv_addr,
                                            topics=[topic]):
            await asyncio.wait_for(done.wait(), 2 * CHECKED_S)
    asyncio.run(scenario())
    wait_until(lambda: visible(cluster, topic) == {b"orphan"}, "the orphan", timeout_s=CHECKED_S)


# -- requests and replies -------------------------------------------------------------------------


def test_java_replies_to_our_requests(module_programs: Programs, cluster: Cluster) -> None:
    topic = topic_of(module_programs, cluster, "ask-java")
    replying = module_programs.start_java(
        "request", namesrv=cluster.namesrv_addr, topic=topic, group=f"{topic}-repliers",
        role="replier", count=3)
    with Producer("PG-py", namesrv=cluster.namesrv_addr) as producer:
        replies = [producer.request(Message(topic, f"request {n}"), timeout=30.0)
                   for n in range(3)]
    replying.finish()
    assert [reply.body.decode() for reply in replies] == [
        f"request {n}"[::-1] for n in range(3)]
    assert all(int(reply.properties["ARRIVE_TIME"]) <= time.time() * 1000 for reply in replies)


def test_we_reply_to_javas_requests(module_programs: Programs, cluster: Cluster) -> None:
    topic = topic_of(module_programs, cluster, "java-asks")
    stopping = threading.Event()

    def reply() -> None:
        with Producer("PG-py-replier", namesrv=cluster.namesrv_addr) as producer, Reader(
                topic, namesrv=cluster.namesrv_addr, start="earliest") as reader:
            while not stopping.is_set():
                for found in reader.read(10, timeout=0.2):
                    producer.send(create_reply(found, found.body.decode()[::-1]))

    replier = threading.Thread(target=reply)
    replier.start()
    try:
        lines = module_programs.java("request", namesrv=cluster.namesrv_addr, topic=topic,
                                     group=f"{topic}-none", role="requester", count=3)
    finally:
        stopping.set()
        replier.join(20)
    assert [line["reply"] for line in lines] == [f"request {n}"[::-1] for n in range(3)]


def test_a_request_without_reply_says_that_it_is_stored(
    module_programs: Programs, cluster: Cluster,
) -> None:
    topic = topic_of(module_programs, cluster, "no-reply")
    with Producer("PG-py", namesrv=cluster.namesrv_addr) as producer, \
            pytest.raises(RequestTimeout) as error:
        producer.request(Message(topic, "anybody?"), timeout=0.5)
    assert (error.value.code, error.value.stored) == (10006, True)
    assert [body for _, _, body in stored(cluster, topic, 1)] == [b"anybody?"]


# -- traces ---------------------------------------------------------------------------------------


def test_traces_say_where_each_message_went(module_programs: Programs, cluster: Cluster) -> None:
    topic = topic_of(module_programs, cluster, "traced")
    traces = topic_of(module_programs, cluster, "traces")
    with Producer("PG-py", namesrv=cluster.namesrv_addr, trace=True,
                  trace_topic=traces) as producer:
        sent = [producer.send(Message(topic, f"{n}", tags="A", keys=f"key{n}")) for n in range(5)]
    text = b"".join(body for _, _, body in stored(cluster, traces, 1)).decode()
    records = [record.split("\x01") for record in text.split("\x02")[:-1]]
    assert {record[5] for record in records} == {result.message_id for result in sent}
    for record in records:
        assert [record[0], *record[3:5], record[6], record[9], record[11], record[13]] == [
            "Pub", "PG-py", topic, "A", "1", "0", "true"]
        assert record[8] == cluster.broker_addr
