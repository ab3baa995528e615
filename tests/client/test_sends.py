"""Ways of sending against brokers in memory that can misbehave: order, batches, limits."""
import asyncio
import concurrent.futures
import threading

import pytest

from mqcore.client import (
    AsyncProducer,
    ClosedError,
    ConfigError,
    ConnectError,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    QueueFull,
    RequestTimeout,
    SendManyError,
    SendResult,
    SendStatus,
    assign_message_id,
)
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.records import decode_record
from tests.client.fake_broker import fake_cluster
from tests.client.threads import cluster_thread
from tests.namesrv.harness import settings_in
from tests.support.waiting import wait_until_async

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def run_on(tmp_path, scenario, *names):
    async def run():
        async with fake_cluster(settings_in(tmp_path), *names) as (address, brokers):
            for broker in brokers:
                await broker.create("T")
            await scenario(address, brokers)
    asyncio.run(run())


def bodies(broker, queue_id):
    return [decode_record(record).body for record in broker.queues.get(("T", queue_id), [])]


def asked(broker, code):
    return [command for command in broker.requests if command.code == code]


def test_sends_of_one_turn_leave_together_and_each_has_its_result(tmp_path):
    async def scenario(address, brokers):
        done = []
        async with AsyncProducer("PG", namesrv=address) as producer:
            futures = [producer.send_soon(Message("T", f"{n}"), on_done=done.append)
                       for n in range(100)]
            results = await asyncio.gather(*futures)
        assert len({(r.queue, r.queue_offset) for r in results}) == 100
        assert set(done) == set(futures)
        assert sorted(bodies(brokers[0], 0) + bodies(brokers[0], 1)) == sorted(
            str(n).encode() for n in range(100))
    run_on(tmp_path, scenario)


@pytest.mark.parametrize("linger", [0.0, 0.01])
def test_messages_of_one_shard_stay_in_order(tmp_path, linger):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, linger=linger, topics=["T"]) as producer:
            results = await asyncio.gather(*(
                producer.send_soon(Message("T", f"{n}"), shard="order-1001") for n in range(50)))
        (queue,) = {result.queue for result in results}
        assert queue.queue_id == 708180863 % 2
        assert bodies(brokers[0], queue.queue_id) == [str(n).encode() for n in range(50)]
        assert [result.queue_offset for result in results] == list(range(50))
        assert bool(asked(brokers[0], BATCH)) is bool(linger)
    run_on(tmp_path, scenario)


def test_a_selector_gets_queues_message_and_argument(tmp_path):
    async def scenario(address, brokers):
        seen = []

        def last(queues, message, arg):
            seen.append((message.body, arg, len(queues)))
            return queues[-1]

        async with AsyncProducer("PG", namesrv=address) as producer:
            result = await producer.send(Message("T", "x"), selector=last, arg=7)
            assert (result.queue.queue_id, seen) == (1, [(b"x", 7, 2)])
            with pytest.raises(ConfigError, match="selector"):
                await producer.send(Message("T", "x"), selector=lambda *_: None)
            with pytest.raises(ConfigError, match="shard and selector"):
                await producer.send(Message("T", "x"), selector=last, shard="x")
            with pytest.raises(ConfigError, match=r"shard 1\.5"):
                await producer.send(Message("T", "x"), shard=1.5)
            assert producer._sender.room.count == 0
    run_on(tmp_path, scenario)


def test_many_messages_travel_in_batches_and_stay_in_order_in_their_queues(tmp_path):
    async def scenario(address, brokers):
        messages = [Message("T", f"{n}") for n in range(1_000)]
        messages.insert(500, Message("U", "other"))
        messages.insert(200, Message("T", "late", delay_level=1))
        async with AsyncProducer("PG", namesrv=address, batch_count=32) as producer:
            results = await producer.send_many(messages)
            assert await producer.send_many([]) == []
        for message, result in zip(messages, results, strict=True):
            record = decode_record(brokers[0].queues[
                message.topic, result.queue.queue_id][result.queue_offset])
            assert (record.body, record.properties["UNIQ_KEY"]) == (
                message.body, result.message_id)
        for queue_id in (0, 1):
            numbers = [int(body) for body in bodies(brokers[0], queue_id) if body.isdigit()]
            assert numbers == sorted(numbers)
        assert len(asked(brokers[0], BATCH)) < 60
        assert len(asked(brokers[0], SEND)) == 2
    run_on(tmp_path, scenario)


def test_none_of_many_is_sent_when_one_of_them_cannot_be(tmp_path):
    async def scenario(address, brokers):
        def with_one(name, value):
            messages = [Message("T", f"{n}") for n in range(200)]
            setattr(messages[150], name, value)
            return messages
        async with AsyncProducer("PG", namesrv=address, batch_count=10) as producer:
            for messages, words in (
                    (with_one("properties", {"a": "b\x02"}), "characters 1 and 2"),
                    (with_one("properties", {"a": "x" * 40_000}), "properties of 40044 bytes"),
                    (with_one("flag", 1 << 31), "flag 2147483648"), (with_one("flag", "x"), "flag"),
                    (with_one("body", "x"), "body: expected bytes"),
                    ([*with_one("flag", 0), "x"], "expected a Message, not str")):
                with pytest.raises(ConfigError, match=words):
                    await producer.send_many(messages)
            assert producer._sender.room.count == 0
        assert asked(brokers[0], BATCH) == []
    run_on(tmp_path, scenario)


def test_many_messages_go_to_the_queues_of_their_shards(tmp_path):
    async def scenario(address, brokers):
        messages = [Message("T", f"{n}", keys=f"order-{n % 5}") for n in range(200)]
        async with AsyncProducer("PG", namesrv=address, batch_bytes=1_000) as producer:
            results = await producer.send_many(messages, shard=lambda m: m.keys[0])
            one = await producer.send(Message("T", "x"), shard="order-3")
        queues = {}
        for message, result in zip(messages, results, strict=True):
            assert queues.setdefault(message.keys[0], result.queue) == result.queue
        assert one.queue == queues["order-3"]
        for queue_id in (0, 1):
            numbers = [int(body) for body in bodies(brokers[0], queue_id) if body != b"x"]
            assert numbers == sorted(numbers)
    run_on(tmp_path, scenario)


def test_what_became_of_each_of_many_is_told(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, batch_count=10) as producer:
            brokers[0].answers[BATCH] = [ResponseCode.SYSTEM_BUSY]
            with pytest.raises(SendManyError) as error:
                await producer.send_many([Message("T", f"{n}") for n in range(30)])
        results = error.value.results
        assert [getattr(each, "status", each) for each in results[10:]] == [
            SendStatus.SEND_OK] * 20
        assert {(each.code, each.stored) for each in results[:10]} == {
            (ResponseCode.SYSTEM_BUSY, False)}
        assert error.value.stored is None
        assert sum(len(bodies(brokers[0], q)) for q in (0, 1)) == 20
    run_on(tmp_path, scenario)


def test_in_order_nothing_follows_a_failure_in_its_queue(tmp_path):
    async def scenario(address, brokers):
        messages = [Message("T", f"{n}", keys=str(n % 2)) for n in range(60)]
        async with AsyncProducer("PG", namesrv=address, batch_count=10) as producer:
            brokers[0].answers[BATCH] = [ResponseCode.SYSTEM_BUSY]
            with pytest.raises(SendManyError) as error:
                await producer.send_many(messages, shard=lambda m: int(m.keys[0]), in_order=True)
            whole = await producer.send_many(messages, shard=lambda m: int(m.keys[0]),
                                             in_order=True)
            with pytest.raises(ConfigError, match="in_order: expected with queue or shard"):
                await producer.send_many(messages, in_order=True)
        failed = {m.keys[0] for m, each in zip(messages, error.value.results, strict=True)
                  if not isinstance(each, SendResult)}
        assert len(failed) == 1                 # the other queue's are all stored
        (key,) = failed
        left = [each for m, each in zip(messages, error.value.results, strict=True)
                if m.keys[0] == key]
        assert [each.stored for each in left] == [False] * 30
        assert "not sent, because one before it" in str(left[10])
        assert left[10].retryable
        assert {each.message_id for each in whole} == {m.unique_key for m in messages}
        assert sorted(len(bodies(brokers[0], q)) for q in (0, 1)) == [30, 60]
    run_on(tmp_path, scenario)


def test_a_message_keeps_the_id_that_it_was_given_before_its_send(tmp_path):
    async def scenario(address, brokers):
        message = Message("T", "x")
        given = assign_message_id(message)
        again = Message("T", "x")
        again.properties.update(message.properties)
        async with AsyncProducer("PG", namesrv=address) as producer:
            results = [await producer.send(each) for each in (message, again)]
        assert assign_message_id(message) == given
        assert [result.message_id for result in results] == [given, given]
    run_on(tmp_path, scenario)


def test_a_full_producer_refuses_send_soon_and_lets_send_wait(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, max_in_flight=2,
                                 send_timeout=5.0) as producer:
            first = [producer.send_soon(Message("T", "x")) for _ in range(2)]
            with pytest.raises(QueueFull, match="max_in_flight"):
                producer.send_soon(Message("T", "x"))
            waited = await producer.send(Message("T", "y"))
            assert waited.status is SendStatus.SEND_OK
            await asyncio.gather(*first)
            brokers[0].silent.add(SEND)
            held = [producer.send_soon(Message("T", "x"), timeout=1.0) for _ in range(2)]
            with pytest.raises(QueueFull) as error:
                await producer.send(Message("T", "y"), timeout=0.05)
            assert error.value.stored is False
            assert all(isinstance(each, RequestTimeout)
                       for each in await asyncio.gather(*held, return_exceptions=True))
    run_on(tmp_path, scenario)


def test_bytes_on_their_way_are_bounded_too(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, max_in_flight_bytes=1_000,
                                 compress_over_bytes=1 << 20) as producer:
            large = producer.send_soon(Message("T", bytes(5_000)))    # alone it may
            with pytest.raises(QueueFull):
                producer.send_soon(Message("T", "x"))
            await large
            await producer.send(Message("T", "x"))
    run_on(tmp_path, scenario)


def test_lingering_messages_leave_in_one_batch_by_time_count_and_flush(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, linger=30.0, batch_count=4) as producer:
            by_count = [producer.send_soon(Message("T", f"{n}")) for n in range(4)]
            results = await asyncio.gather(*by_count)
            assert [r.queue_offset for r in results] == [0, 1, 2, 3]
            rest = [producer.send_soon(Message("T", "x")) for _ in range(3)]
            delayed = await producer.send(Message("T", "later", delay_level=1))
            assert delayed.status is SendStatus.SEND_OK
            assert not any(future.done() for future in rest)
            await producer.flush(5)
            assert all(future.done() for future in rest)
        async with AsyncProducer("PG", namesrv=address, linger=0.01) as producer:
            await asyncio.gather(*(producer.send_soon(Message("T", "y")) for _ in range(5)))
        assert len(asked(brokers[0], BATCH)) == 3
        assert len(asked(brokers[0], SEND)) == 1
    run_on(tmp_path, scenario)


A_S_QUEUE = 1                           # where messages with the shard "a" go, of two


async def by_many(producer, at):
    await producer.send_many([Message("T", "2")], shard=lambda message: "a")


async def by_batch(producer, at):
    await producer.send_batch([Message("T", "2")], queue=at)


async def by_oneway(producer, at):
    await producer.send_oneway("T", "2", shard="a")


@pytest.mark.parametrize("overtake", [
    {"body": "2" * 5_000}, {"body": "2", "delay_level": 1}, {"body": "2", "wait_store": False},
    {"body": "2", "timeout": 40}, {"body": "2", "shard": None, "selector": lambda queues, *_:
        next(queue for queue in queues if queue.queue_id == A_S_QUEUE)},
    {"body": "2", "shard": None, "queue": A_S_QUEUE}, by_many, by_batch, by_oneway,
], ids=["large", "delayed", "other batch", "patient", "selected", "queue", "many", "batch",
        "oneway"])
def test_nothing_overtakes_what_lingers_for_its_queue(tmp_path, overtake):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, linger=30.0, batch_count=2,
                                 topics=["T"]) as producer:
            at = MessageQueue("T", "broker-a", A_S_QUEUE)
            other = producer.send_soon("T", "other", shard="b")
            first = producer.send_soon("T", "1", shard="a")
            if callable(overtake):
                await overtake(producer, at)
            else:
                how = {"shard": "a"} | overtake
                if how.get("queue") is not None:
                    how["queue"] = at
                second = producer.send_soon("T", how.pop("body"), **how)
                third = producer.send_soon("T", "3", shard="a")
                await producer.flush(30)
                assert [one.result().queue_offset for one in (first, second, third)] == [0, 1, 2]
            assert (await first).queue_offset == 0
            await wait_until_async(lambda: len(bodies(brokers[0], A_S_QUEUE)) > 1, "both")
            await producer.flush(30)
            assert other.done()
            assert bodies(brokers[0], 1 - A_S_QUEUE) == [b"other"]
    run_on(tmp_path, scenario)


def test_closing_sends_what_lingers(tmp_path):
    async def scenario(address, brokers):
        producer = AsyncProducer("PG", namesrv=address, linger=30.0)
        await producer.start()
        future = producer.send_soon(Message("T", "x"))
        await producer.close()
        assert (await future).status is SendStatus.SEND_OK
        with pytest.raises(ClosedError):
            producer.send_soon(Message("T", "x"))
    run_on(tmp_path, scenario)


def test_closing_gives_up_what_no_broker_answers(tmp_path):
    async def scenario(address, brokers):
        brokers[0].silent.add(SEND)
        producer = AsyncProducer("PG", namesrv=address)
        await producer.start()
        future = producer.send_soon(Message("T", "x"))
        await wait_until_async(lambda: any(one.code == SEND for one in brokers[0].requests),
                               "it was sent")
        await producer.close(timeout=0.1)
        with pytest.raises(ConnectError) as error:
            await future
        assert error.value.stored is None
    run_on(tmp_path, scenario)


def test_a_cancelled_wait_harms_nobody(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            given_up = producer.send_soon(Message("T", "x"))
            given_up.cancel()
            assert (await producer.send(Message("T", "y"))).status is SendStatus.SEND_OK
            await producer.flush(5)
        assert len(asked(brokers[0], SEND)) == 2
    run_on(tmp_path, scenario)


def test_a_refused_queue_is_tried_once_a_free_message_again(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            queue = MessageQueue("T", "broker-a", 1)
            brokers[0].answers[SEND] = [ResponseCode.SYSTEM_ERROR]
            with pytest.raises(Exception, match="planned"):
                await producer.send(Message("T", "x"), queue=queue)
            brokers[0].answers[SEND] = [ResponseCode.SYSTEM_ERROR]
            assert (await producer.send(Message("T", "x"))).status is SendStatus.SEND_OK
            assert (await producer.send(Message("T", "x"), queue=queue)).queue == queue
            assert len(asked(brokers[0], SEND)) == 4
            with pytest.raises(ConfigError, match="topic T"):
                await producer.send(Message("T", "x"), queue=MessageQueue("U", "broker-a", 0))
            with pytest.raises(NoRouteError):
                await producer.send(Message("T", "x"), queue=MessageQueue("T", "nobody", 0))
    run_on(tmp_path, scenario)


@pytest.mark.parametrize("again", [False, True])
def test_not_flushed_is_stored_and_tried_again_when_asked_for(tmp_path, again):
    async def scenario(address, brokers):
        async def slow(command, writer):
            answer = await type(brokers[0]).on_send_message_v2(brokers[0], command, writer)
            if len(asked(brokers[0], SEND)) == 1:
                answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            return answer
        brokers[0].on_send_message_v2 = slow
        async with AsyncProducer("PG", namesrv=address, retry_not_ok=again) as producer:
            result = await producer.send(Message("T", "x"))
        assert result.status is (SendStatus.SEND_OK if again else SendStatus.FLUSH_DISK_TIMEOUT)
    run_on(tmp_path, scenario)


def test_slow_and_failing_brokers_are_left_alone(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, latency_faults=True,
                                 retry_count=5) as producer:
            for broker in brokers:
                if broker.name == "broker-a":
                    broker.answers[SEND] = [ResponseCode.SERVICE_NOT_AVAILABLE] * 100
            for _ in range(20):
                result = await producer.send(Message("T", "x"))
                assert result.queue.broker_name == "broker-b"
        assert len(asked(brokers[0], SEND)) <= 1
    run_on(tmp_path, scenario, "broker-a", "broker-b")


def test_sends_survive_a_connection_that_ends(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "x"))
            (connection,) = [c for a, c in producer._instance.pool._connections.items()
                             if a == brokers[0].address]
            brokers[0].silent.add(SEND)
            lost = producer.send_soon(Message("T", "lost"), queue=MessageQueue("T", "broker-a", 0))
            retried = producer.send_soon(Message("T", "again"))
            await wait_until_async(lambda: len(asked(brokers[0], SEND)) == 3, "both are written")
            brokers[0].silent.clear()
            connection.abort()
            with pytest.raises(ConnectError) as error:
                await lost
            assert error.value.stored is None
            assert (await retried).status is SendStatus.SEND_OK
    run_on(tmp_path, scenario)


def test_hooks_see_each_try_and_may_forbid(tmp_path):
    class Hook:
        def __init__(self):
            self.seen = []

        def before_send(self, context):
            context.props["n"] = len(self.seen)

        def after_send(self, context):
            self.seen.append((context.message.body, context.queue.topic, context.producer_group,
                              context.result is not None, context.error is not None))
            raise RuntimeError("a hook must not harm")

        def check_forbidden(self, context):
            if context.message.tags == "no":
                raise PermissionError("no")

    async def scenario(address, brokers):
        hook = Hook()
        async with AsyncProducer("PG", namesrv=address) as producer:
            producer.add_hook(hook)
            with pytest.raises(ConfigError, match="hook"):
                producer.add_hook(object())
            brokers[0].answers[SEND] = [ResponseCode.SYSTEM_ERROR]
            await producer.send(Message("T", "x"))
            with pytest.raises(ConfigError, match="forbids"):
                await producer.send(Message("T", "y", tags="no"))
        assert hook.seen == [(b"x", "T", "PG", False, True), (b"x", "T", "PG", True, False)]
        assert len(asked(brokers[0], SEND)) == 2
    run_on(tmp_path, scenario)


def test_names_carry_the_namespace_on_the_wire_only(tmp_path):
    async def scenario(address, brokers):
        await brokers[0].create("space%T")
        async with AsyncProducer("PG", namesrv=f"rocketmq://{address}/space") as producer:
            result = await producer.send(Message("T", "x"))
            many = await producer.send_many([Message("T", "y"), Message("T", "z")])
            queue = MessageQueue("T", "broker-a", 1)
            assert (await producer.send(Message("T", "x"), queue=queue)).queue == queue
        assert {result.queue.topic, many[0].queue.topic} == {"T"}
        assert producer.group == "PG"
        sent = asked(brokers[0], SEND) + asked(brokers[0], BATCH)
        assert {(c.ext["a"], c.ext["b"]) for c in sent} == {("space%PG", "space%T")}
    run_on(tmp_path, scenario)


def test_signed_requests_carry_key_and_signature(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, credentials=("RocketMQ", "12345678"),
                                 stream=True) as producer:
            await producer.send(Message("T", "x"))
        (sent,) = asked(brokers[0], SEND)
        assert (sent.ext["AccessKey"], sent.ext["ReqT"], len(sent.ext["Signature"])) == (
            "RocketMQ", "0", 28)
        assert producer.client_id.endswith("@STREAM")
    run_on(tmp_path, scenario)


def test_room_that_a_cancelled_send_was_given_goes_to_the_next_one(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, max_in_flight=1, topics=["T"]) as producer:
            tasks = []
            producer.send_soon(Message("T", "a"), on_done=lambda _: tasks[0].cancel())
            tasks += [asyncio.create_task(producer.send(Message("T", body), timeout=15))
                      for body in "bc"]
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1].status is SendStatus.SEND_OK
        assert sorted(bodies(brokers[0], 0) + bodies(brokers[0], 1)) == [b"a", b"c"]
    run_on(tmp_path, scenario)


def test_threads_share_a_producer_that_blocks(tmp_path):
    with cluster_thread(tmp_path) as (address, _brokers), Producer(
            "PG", namesrv=address, max_in_flight=10) as producer:
        def work(number):
            futures = [producer.send_soon(Message("T", f"{number}-{n}")) for n in range(50)]
            return [future.result(20).message_id for future in futures]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            ids = [each for found in pool.map(work, range(4)) for each in found]
        assert len(set(ids)) == 200
        assert producer._role._sender.room.count == 0
        done = threading.Event()
        producer.send_soon(Message("T", "x"), on_done=lambda future: done.set())
        assert done.wait(20)
        assert len(producer.send_many([Message("T", "x") for _ in range(300)])) == 300
        producer.send_oneway(Message("T", "x"))
        producer.flush(5)
