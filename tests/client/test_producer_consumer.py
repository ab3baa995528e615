"""Producer and push consumer against our name server and brokers in memory."""
import asyncio
import json
import sys
import zlib

import pytest
from click.testing import CliRunner

from mqcore.admin.nouns.message_send import send_command
from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    BrokerError,
    ClientError,
    ConsumeStatus,
    Message,
    RequestTimeout,
    SendStatus,
)
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.records import decode_record
from tests.client.fake_broker import fake_cluster
from tests.namesrv.harness import settings_in
from tests.support.waiting import wait_until_async

SEND = RequestCode.SEND_MESSAGE_V2


def sends(broker):
    return [command for command in broker.requests if command.code == SEND]


def scenario_on(tmp_path, scenario, *names):
    async def run():
        async with fake_cluster(settings_in(tmp_path), *names) as (address, brokers):
            await scenario(address, brokers)
    asyncio.run(run())


def test_a_new_topic_is_made_by_its_first_message(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            result = await producer.send(Message("T", "hello", tags="A", keys=["k", "l"]))
            assert (result.status, result.queue_offset) == (SendStatus.SEND_OK, 0)
            stored = decode_record(brokers[0].queues[("T", result.queue.queue_id)][0])
            assert stored.properties["UNIQ_KEY"] == result.message_id
            assert (stored.tags, stored.keys, stored.body) == ("A", ["k", "l"], b"hello")
            assert stored.properties["WAIT"] == "true"
    scenario_on(tmp_path, scenario)


def test_queues_take_turns(tmp_path):
    async def scenario(address, brokers):
        for broker in brokers:
            await broker.create("T")
        async with AsyncProducer("PG", namesrv=address) as producer:
            queues = [(await producer.send(Message("T", "x"))).queue for _ in range(8)]
            assert {queue: queues.count(queue) for queue in queues} == dict.fromkeys(queues, 2)
            assert len(set(queues)) == 4
    scenario_on(tmp_path, scenario, "broker-a", "broker-b")


def test_a_large_body_travels_compressed(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", b"x" * 4095))
            await producer.send(Message("T", b"x" * 4096))
        small, large = sends(brokers[0])
        assert (small.ext["f"], small.body) == ("0", b"x" * 4095)
        assert (large.ext["f"], zlib.decompress(large.body)) == (str(0x301), b"x" * 4096)
    scenario_on(tmp_path, scenario)


def test_a_batch_is_stored_with_a_key_for_each_message(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            messages = [Message("T", f"{n}", tags="A") for n in range(3)]
            result = await producer.send_batch(messages)
            stored = map(decode_record, brokers[0].queues[("T", result.queue.queue_id)])
            assert result.message_id == ",".join(r.properties["UNIQ_KEY"] for r in stored)
    scenario_on(tmp_path, scenario)


@pytest.mark.parametrize("messages", [
    [],
    [Message("T", "x"), Message("U", "x")],
    [Message("T", "x"), Message("T", "x", wait_store=False)],
    [Message("T", "x", delay_level=1)],
    [Message("%RETRY%g", "x")],
    [Message("T", b"x" * 3_000_000), Message("T", b"x" * 3_000_000)],
])
def test_a_batch_that_does_not_fit_together_is_refused(tmp_path, messages):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            with pytest.raises(ClientError, match="batch"):
                await producer.send_batch(messages)
    scenario_on(tmp_path, scenario)


@pytest.mark.parametrize("message", [
    Message("T", ""), Message("", "x"), Message("a b", "x"), Message("x" * 128, "x"),
    Message("SCHEDULE_TOPIC_XXXX", "x"), Message("T", bytes(4 * 1024 * 1024 + 1)),
])
def test_a_message_that_brokers_refuse_is_refused_before_it_is_sent(tmp_path, message):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            with pytest.raises(ClientError) as error:
                await producer.send(message)
            assert error.value.response_code == ResponseCode.MESSAGE_ILLEGAL
            assert sends(brokers[0]) == []
    scenario_on(tmp_path, scenario)


def test_a_failed_send_is_tried_on_the_other_broker_with_the_same_key(tmp_path):
    async def scenario(address, brokers):
        for broker in brokers:
            await broker.create("T")
            broker.answers[SEND] = [ResponseCode.SYSTEM_ERROR] * 2
        async with AsyncProducer("PG", namesrv=address) as producer:
            with pytest.raises(BrokerError) as error:
                await producer.send(Message("T", "y"))
            assert error.value.response_code == ResponseCode.SYSTEM_ERROR
            assert error.value.stored is None
            tried = [sends(broker) for broker in brokers]
            assert sorted(map(len, tried)) == [1, 2]
            assert len({command.ext["i"] for side in tried for command in side}) == 1
            for broker in brokers:
                broker.answers[SEND] = [ResponseCode.SERVICE_NOT_AVAILABLE]
            assert (await producer.send(Message("T", "z"))).status is SendStatus.SEND_OK
    scenario_on(tmp_path, scenario, "broker-a", "broker-b")


def test_a_refusal_that_a_retry_would_not_cure_is_raised_at_once(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address) as producer:
            brokers[0].answers[SEND] = [ResponseCode.SYSTEM_BUSY]
            with pytest.raises(BrokerError) as error:
                await producer.send(Message("T", "x"))
            assert error.value.response_code == ResponseCode.SYSTEM_BUSY
            assert len(sends(brokers[0])) == 1
    scenario_on(tmp_path, scenario)


def test_a_broker_that_never_answers_costs_the_budget_and_no_more(tmp_path):
    async def scenario(address, brokers):
        async with AsyncProducer("PG", namesrv=address, send_timeout=0.2) as producer:
            brokers[0].silent.add(SEND)
            started = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimeout) as error:
                await producer.send(Message("T", "x"))
            assert error.value.stored is None
            assert 0.15 < asyncio.get_running_loop().time() - started < 2
    scenario_on(tmp_path, scenario)


def test_a_message_is_consumed_and_its_offset_committed_at_shutdown(tmp_path):
    async def scenario(address, brokers):
        broker, got = brokers[0], []
        async with AsyncProducer("PG", namesrv=address) as producer:
            for n in range(20):
                await producer.send(Message("T", f"{n}", tags="AB"[n % 2]))

            async def listen(messages, context):
                got.extend(messages)
            consumer = AsyncPushConsumer(
                "CG", {"T": "A"}, listen, namesrv=address, start="earliest")
            async with consumer:
                await wait_until_async(lambda: len(got) == 10, "ten messages")
                await producer.send(Message("T", "late", tags="A"))
                await wait_until_async(lambda: len(got) == 11, "the message of a held pull")
        assert {message.tags for message in got} == {"A"}
        committed = [broker.committed[("CG", "T", number)] for number in range(2)]
        assert committed == [len(broker.queues[("T", number)]) for number in range(2)]
        assert broker.members["CG"] == {}
    scenario_on(tmp_path, scenario)


def test_a_message_whose_tag_only_has_an_equal_hash_is_left_out(tmp_path):
    async def scenario(address, brokers):
        got = []
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "wrong", tags="BB"))       # hash of "Aa"
            await producer.send(Message("T", "right", tags="Aa"))
            consumer = AsyncPushConsumer(
                "CG", "T", got.append, filter="Aa", namesrv=address, start="earliest",
                run_in_thread=True)
            async with consumer:
                await wait_until_async(lambda: got, "a message")
        assert [message.body for message in got] == [b"right"]
    scenario_on(tmp_path, scenario)


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_message_that_failed_comes_again_by_the_retry_topic(tmp_path, in_thread):
    async def scenario(address, brokers):
        got = []

        def listen(messages, context):
            got.extend(messages)
            if messages[0].reconsume_times == 0:
                context.delay_level = 1
                raise RuntimeError("not now")
            return ConsumeStatus.SUCCESS

        async def later(messages, context):
            return listen(messages, context)
        async with AsyncProducer("PG", namesrv=address) as producer:
            sent = await producer.send(Message("T", "x"))
            consumer = AsyncPushConsumer(
                "CG", "T", listen if in_thread else later, namesrv=address, start="earliest",
                run_in_thread=in_thread)
            async with consumer:
                await wait_until_async(lambda: len(got) == 2, "two messages")
        back = next(c for c in brokers[0].requests if c.code == RequestCode.CONSUMER_SEND_MSG_BACK)
        assert (back.ext["delayLevel"], back.ext["group"]) == ("1", "CG")
        assert [(m.topic, m.reconsume_times) for m in got] == [("T", 0), ("T", 1)]
        assert got[1].message_id == sent.message_id
    scenario_on(tmp_path, scenario)


def test_two_members_share_the_queues_and_the_one_that_stays_gets_them_back(tmp_path):
    async def scenario(address, brokers):
        async def listen(messages, context):
            return ConsumeStatus.SUCCESS

        def member():
            return AsyncPushConsumer("CG", ["T"], listen, namesrv=address)

        def queues(consumer):
            return [queue for queue in consumer.assignment if queue.topic == "T"]
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "x"))
            async with member() as first:
                await wait_until_async(lambda: len(queues(first)) == 2, "both queues at the first")
                async with member() as second:
                    await wait_until_async(
                        lambda: len(queues(first)) == len(queues(second)) == 1, "a queue each")
                    assert queues(first) != queues(second)
                await wait_until_async(lambda: len(queues(first)) == 2, "both queues at the first")
    scenario_on(tmp_path, scenario)


def test_a_corrected_offset_is_taken_over(tmp_path):
    async def scenario(address, brokers):
        got = []
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "x"))
            brokers[0].committed.update({("CG", "T", number): 1000 for number in range(2)})
            consumer = AsyncPushConsumer(
                "CG", "T", got.append, namesrv=address, run_in_thread=True)
            async with consumer:
                await wait_until_async(lambda: all(
                    brokers[0].committed[("CG", "T", number)] <= 1 for number in range(2)
                ), "offsets that were moved")
                for _ in range(2):
                    await producer.send(Message("T", "after"))
                await wait_until_async(lambda: len(got) == 2, "two messages")
    scenario_on(tmp_path, scenario)


def test_a_consumer_that_lost_its_connections_joins_again(tmp_path):
    async def scenario(address, brokers):
        got = []
        async with AsyncProducer("PG", namesrv=address) as producer:
            await producer.send(Message("T", "before"))
            consumer = AsyncPushConsumer(
                "CG", "T", got.append, namesrv=address, start="earliest", run_in_thread=True)
            async with consumer:
                await wait_until_async(lambda: got, "a message")
                lost = list(brokers[0].members["CG"].values())
                for writer in lost:
                    writer.transport.abort()
                await wait_until_async(         # it may be a member again, by another connection
                    lambda: not any(one in lost for one in brokers[0].members["CG"].values()),
                    "no lost connection is a member's")
                await producer.send(Message("T", "after"))
                await wait_until_async(lambda: len(got) == 2, "two messages")
    scenario_on(tmp_path, scenario)


def test_a_client_without_a_name_server_says_so():
    async def scenario():
        with pytest.raises(ClientError, match="NAMESRV_ADDR"):
            await AsyncProducer("PG", namesrv="").start()
    asyncio.run(scenario())


async def command(name, *arguments):
    """Run a command as a process; returns its exit status and its lines of JSON."""
    program = f"from mqcore.admin.nouns.message_send import {name}; {name}()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, [json.loads(line) for line in output.splitlines()]


def test_the_commands_send_and_consume_messages(tmp_path):
    async def scenario(address, brokers):
        status, sent = await command(
            "send_command", "-t", "T", "-n", address, "-p", "höllo", "--tags", "A",
            "--count", "3", "--property", "u=v",
        )
        assert (status, [line["status"] for line in sent]) == (0, ["SEND_OK"] * 3)

        consume = ("consume_command", "-t", "T", "-g", "CG", "-n", address, "--timeout", "20")
        status, got = await command(*consume, "--count", "2")
        assert status == 0
        assert [(line["body"], line["properties"]["u"]) for line in got] == [("höllo", "v")] * 2
        _, rest = await command(*consume, "--count", "1")
        assert {line["messageId"] for line in sent} == {
            line["messageId"] for line in got + rest
        }
    scenario_on(tmp_path, scenario)


@pytest.mark.parametrize("arguments", [
    ("-t", "T"), ("-t", "T", "-p", "x", "--property", "u"), ("-p", "x"),
    ("-t", "T", "-p", "x", "--count", "0"), ("-t", "T", "-p", "x", "-n", "nowhere"),
])
def test_a_command_line_that_is_wrong_says_what_was_expected(arguments):
    outcome = CliRunner().invoke(send_command, arguments)

    assert outcome.exit_code != 0
    assert "rror" in outcome.output
