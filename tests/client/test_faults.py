"""Producers while brokers die and come back, name servers are away, and frames are cut off."""
import asyncio
import contextlib
import threading

import pytest

from mqcore.client import (
    AsyncProducer,
    ConnectError,
    Message,
    Producer,
    Reader,
    RequestTimeout,
    RocketMQError,
)
from mqcore.wire.command import encode, response
from tests.client.fake_broker import fake_cluster
from tests.namesrv.harness import settings_in
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until

NOBODY = "127.0.0.1:1"


class Sending(threading.Thread):
    """Sends numbered messages one after the other until it is told to stop."""

    def __init__(self, producer, topic):
        super().__init__()
        self._producer, self._topic = producer, topic
        self.stopping = threading.Event()
        self.futures = []

    def run(self):
        while not self.stopping.is_set():
            with contextlib.suppress(RocketMQError):        # full while nobody answers
                body = f"{len(self.futures)}"
                self.futures.append(
                    self._producer.send_soon(Message(self._topic, body), timeout=2.0))
                if len(self.futures) % 50 == 0:
                    self.futures[-1].exception(timeout=20)

    def stored(self):
        return sum(future.done() and not future.exception() for future in self.futures)


def test_what_is_said_of_messages_holds_when_the_broker_is_killed(tmp_path):
    """Each result is in the store at its place, once or more; what is surely not stored is not."""
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(mqcore_namesrv(tmp_path / "names"))
        first = stack.enter_context(
            mqcore_up(tmp_path / "broker", namesrv_addr=names.namesrv_addr))
        port = int(first.broker_addr.rpartition(":")[2])
        producer = stack.enter_context(
            Producer("PG", namesrv=names.namesrv_addr, max_in_flight=500))
        producer.send(Message("Killed", "first"))
        sending = Sending(producer, "Killed")
        sending.start()
        try:
            wait_until(lambda: sending.stored() > 300, "messages before the kill")
            first.kill()
            wait_until(lambda: any(future.done() and future.exception()
                                   for future in sending.futures[-2_000:]), "failures")
            second = stack.enter_context(mqcore_up(
                tmp_path / "broker", {"broker.listen_port": port},
                namesrv_addr=names.namesrv_addr))
            before = sending.stored()
            wait_until(lambda: sending.stored() > before + 300, "messages after the start")
        finally:
            sending.stopping.set()
            sending.join(30)
        producer.flush(20)
        found = {}

        def read():
            with Reader("Killed", namesrv=names.namesrv_addr, start="earliest",
                        stop="end") as reader:
                found.update({(m.queue.queue_id, m.queue_offset): (m.body, m.message_id)
                              for m in reader})
            return len(found) > sending.stored()        # and the first one

        wait_until(read, "what is stored can be read", timeout_s=20)
        assert second.broker_addr == first.broker_addr
    bodies = {body for body, _ in found.values()}
    for number, future in enumerate(sending.futures):
        error = future.exception()
        if error is None:
            place = (future.result().queue.queue_id, future.result().queue_offset)
            assert found[place] == (str(number).encode(), future.result().message_id)
        else:
            assert isinstance(error, RocketMQError)
            assert error.stored in (None, False)
            if error.stored is False:
                assert str(number).encode() not in bodies


def test_one_live_name_server_is_enough_and_none_is_needed_for_a_known_route(tmp_path):
    async def scenario():
        async with fake_cluster(settings_in(tmp_path)) as (address, brokers):
            async with AsyncProducer("PG", namesrv=[NOBODY, address, "127.0.0.1:2"]) as producer:
                for _ in range(5):
                    await producer.send(Message("T", "x"))
                known = producer._instance.name_servers
                known.update([NOBODY])
                assert known.addresses == [NOBODY]
                assert (await producer.send(Message("T", "y"))).queue_offset >= 0
                with pytest.raises(ConnectError) as error:
                    await producer.send(Message("Unknown", "x"))
                assert error.value.stored is False
                assert not known.update([NOBODY])
            assert len(brokers[0].queues) > 0
    asyncio.run(scenario())


def test_a_hung_name_server_costs_its_share_of_the_time(tmp_path):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async def scenario():
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        hung = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, fake_cluster(settings_in(tmp_path)) as (address, _):
            for _ in range(3):          # whichever is asked first
                async with AsyncProducer("PG", namesrv=[hung, address],
                                         send_timeout=2.0) as producer:
                    assert (await producer.send(Message("T", "x"))).queue_offset >= 0
    asyncio.run(scenario())


@pytest.mark.parametrize("cut", [2, 6, 40, -1])
def test_an_answer_that_is_cut_off_leaves_the_outcome_open(tmp_path, cut):
    async def scenario():
        async with fake_cluster(settings_in(tmp_path)) as (address, brokers):
            broker = brokers[0]
            await broker.create("T")
            store = broker.on_send_message_v2

            async def half(command, writer):
                answer = await store(command, writer)
                writer.write(encode(answer)[:cut])
                await writer.drain()
                writer.close()
                return answer

            async with AsyncProducer("PG", namesrv=address, retry_count=0) as producer:
                await producer.send(Message("T", "x"))
                broker.on_send_message_v2 = half
                with pytest.raises(ConnectError) as error:
                    await producer.send(Message("T", "y"))
                assert error.value.stored is None
                broker.on_send_message_v2 = store
                assert (await producer.send(Message("T", "z"))).queue_offset >= 0
    asyncio.run(scenario())


@pytest.mark.parametrize("nonsense", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x04\xff\xff\xff\xff",
    b"\x00\x00\x00\x08\x00\x00\x00\x04null"])
def test_nonsense_ends_the_connection_and_the_next_send_works(tmp_path, nonsense):
    async def scenario():
        async with fake_cluster(settings_in(tmp_path)) as (address, brokers):
            broker = brokers[0]
            await broker.create("T")
            store = broker.on_send_message_v2

            async def babble(command, writer):
                writer.write(nonsense)
                await writer.drain()
                broker.on_send_message_v2 = store
                await asyncio.Event().wait()

            broker.on_send_message_v2 = babble
            async with AsyncProducer("PG", namesrv=address) as producer:
                assert (await producer.send(Message("T", "y"))).queue_offset >= 0
    asyncio.run(scenario())


def test_a_silent_connection_is_given_up(tmp_path):
    async def scenario():
        async with fake_cluster(settings_in(tmp_path)) as (address, brokers):
            broker = brokers[0]
            await broker.create("T")
            async with AsyncProducer("PG", namesrv=address) as producer:
                await producer.send(Message("T", "x"))
                pool = producer._instance.pool
                before = pool.open_connection(broker.address)
                broker.silent.update(range(1_000))
                with pytest.raises(RequestTimeout):
                    await producer.send(Message("T", "x"), timeout=0.1)
                broker.silent.clear()
                await producer.send(Message("T", "x"))
                assert pool.open_connection(broker.address) is not before
    asyncio.run(scenario())


def test_an_answer_that_comes_too_late_matches_nothing(tmp_path):
    async def scenario():
        async with fake_cluster(settings_in(tmp_path)) as (address, brokers):
            broker = brokers[0]
            await broker.create("T")
            late = []

            async def hold(command, writer):
                late.append((command, writer))
                await asyncio.Event().wait()

            store, broker.on_send_message_v2 = broker.on_send_message_v2, hold
            async with AsyncProducer("PG", namesrv=address) as producer:
                with pytest.raises(RequestTimeout):
                    await producer.send(Message("T", "x"), timeout=0.1)
                broker.on_send_message_v2 = store
                for command, writer in late:
                    writer.write(encode(response(command, 0, ext={
                        "msgId": "00", "queueId": "0", "queueOffset": "99"})))
                assert (await producer.send(Message("T", "y"))).queue_offset != 99
    asyncio.run(scenario())


# -- finding name servers by HTTP (remoting.md 2.7) ------------------------------------------------


@contextlib.asynccontextmanager
async def domain(answer, asked):
    """An HTTP server that answers each request with `answer`; yields its host:port."""
    async def serve(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode())
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(("unit", "path"), [("", "/rocketmq/nsaddr"),
                                            ("u1", "/rocketmq/nsaddr-u1?nofix=1")])
def test_name_servers_are_found_by_http(tmp_path, monkeypatch, unit, path):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def scenario():
        asked = []
        async with fake_cluster(settings_in(tmp_path)) as (address, _):
            answer = f"HTTP/1.1 200 OK\r\nX: y\r\n\r\n{address};{NOBODY}\nmore\n".encode()
            async with domain(answer, asked) as host, AsyncProducer(
                    "PG", namesrv_domain=host, unit_name=unit) as producer:
                assert (await producer.send(Message("T", "x"))).queue_offset >= 0
                assert producer.client_id.endswith(f"@{unit}") is bool(unit)
        assert asked == [f"GET {path} HTTP/1.0"]
    asyncio.run(scenario())


@pytest.mark.parametrize(("answer", "error"), [
    (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"), (b"", "asking"),
    (b"HTTP/1.1 200 OK\r\n\r\nno address", "expected host:port"),
    (b"HTTP/1.1 200 OK\r\n\r\n", "no name server address"),
])
def test_a_bad_answer_of_the_domain_is_told(monkeypatch, answer, error):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def scenario():
        async with domain(answer, []) as host:
            with pytest.raises(RocketMQError, match=error):
                await AsyncProducer("PG", namesrv_domain=host).start()
        with pytest.raises(ConnectError):
            await AsyncProducer("PG", namesrv_domain=NOBODY).start()
    asyncio.run(scenario())
