"""A running name server: liveness, limits, files, and peers that misbehave."""
import asyncio
import contextlib
import socket
from dataclasses import replace

import pytest

from mqcore.namesrv.server import NameServer, network_of
from mqcore.wire import fastjson
from mqcore.wire.codes import LanguageCode, RequestCode, ResponseCode
from mqcore.wire.command import Codec, encode, request
from mqcore.wire.topics import decode_route
from tests.namesrv.harness import (
    DEADLINE_S,
    Clock,
    Peer,
    name_server,
    registration,
    settings_in,
)
from tests.support.waiting import wait_until_async

IDLE_MS = 300
CROWD = 64
ASKED = 600                      # by each of the crowd: a second of the name server's time ...
REGISTERED_TOPICS = 5_000        # ... and some ten slices of it


@pytest.fixture
def clock():
    return Clock()


def running(folder, clock, **settings):
    return name_server(settings_in(folder, **settings), clock)


async def until(condition):
    """Wait until the coroutine function says true; fails after ten seconds."""
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.005)


async def route_code(peer, topic):
    return (await peer.ask(request(105, {"topic": topic}))).code


@pytest.mark.parametrize(("language", "version", "broker"), [
    ("OTHER", 0, b'{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}'),
    ("OTHER", 409, b'{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}'),
    ("JAVA", 477, b'{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}'),
    ("RUST", 413, b'{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C",'
          b'"enableActingMaster":false}'),
])
def test_clients_of_5_read_the_member_of_brokers_that_4_lacks(
        tmp_path, clock, language, version, broker):
    async def scenario():
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            assert (await peer.ask(registration(["T"]))).code == 0
            answer = await peer.ask(replace(
                request(105, {"topic": "T"}), version=version, language=LanguageCode[language]))
            assert b'"brokerDatas":[' + broker + b"]" in answer.body
    asyncio.run(scenario())


def test_a_registered_topic_has_a_route_until_its_broker_disconnects(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock) as port:
            broker, client = await Peer.connect(port), await Peer.connect(port)
            assert (await broker.ask(registration(["T"]))).code == 0
            answer = await client.ask(request(105, {"topic": "T"}))
            assert decode_route(answer.body).brokers[0].addresses == {0: "10.0.0.1:10911"}

            await broker.close()

            async def gone():
                return await route_code(client, "T") == ResponseCode.TOPIC_NOT_EXIST
            await until(gone)
            await client.close()
    asyncio.run(scenario())


def test_a_large_registration_waits_for_no_crowd_that_asks_without_end(tmp_path, clock):
    async def scenario():
        asked = b"".join(encode(request(106, {})) for _ in range(ASKED))
        topics = [f"topic-{number}" for number in range(REGISTERED_TOPICS)]
        answered = 0

        async def crowd(peer):
            nonlocal answered
            for _ in range(ASKED):
                await peer.receive()
                answered += 1

        async with running(tmp_path, clock) as port:
            first, broker = await Peer.connect(port), await Peer.connect(port)
            assert (await first.ask(registration(["T"], name="first"))).code == 0
            peers = [await Peer.connect(port) for _ in range(CROWD)]
            reading = [asyncio.create_task(crowd(peer)) for peer in peers]
            for peer in peers:
                peer.writer.write(asked)

            async def asking():
                return answered > 0
            await until(asking)
            assert (await broker.ask(registration(topics))).code == 0
            assert answered < CROWD * ASKED / 2
            await asyncio.gather(*reading)
            assert await route_code(broker, topics[-1]) == 0
            for peer in (first, broker, *peers):
                await peer.close()
    asyncio.run(scenario())


def test_frames_of_both_lanes_are_answered_in_their_order(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            asked = [request(105, {"topic": "T"}), registration(["T"]),
                     request(105, {"topic": "T"}), registration(["T"]), registration(["T"]),
                     request(105, {"topic": "T"})]
            for number, command in enumerate(asked):
                command.opaque = number
            peer.writer.write(b"".join(encode(command) for command in asked))
            answers = [await peer.receive() for _ in asked]
            assert [answer.opaque for answer in answers] == list(range(len(asked)))
            assert [answer.code for answer in answers] == [
                ResponseCode.TOPIC_NOT_EXIST, 0, 0, 0, 0, 0]
            await peer.close()
    asyncio.run(scenario())


def test_a_compressed_registration_and_a_one_way_one_are_applied(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock) as port:
            broker = await Peer.connect(port)
            oneway = registration(["T"], compressed=True)
            oneway.flag = 2
            broker.writer.write(encode(oneway))
            assert await route_code(broker, "T") == 0
            await broker.close()
    asyncio.run(scenario())


def test_a_silent_broker_is_dropped_and_disconnected(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock, connection_idle_ms=10**9) as port:
            broker, client = await Peer.connect(port), await Peer.connect(port)
            await broker.ask(registration(["T"]))
            clock.ms += 120_001
            assert await broker.is_closed()
            assert await route_code(client, "T") == ResponseCode.TOPIC_NOT_EXIST
            await client.close()
    asyncio.run(scenario())


def test_an_idle_connection_is_closed(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock, connection_idle_ms=IDLE_MS) as port:
            peer = await Peer.connect(port)
            await route_code(peer, "T")
            assert await peer.is_closed()
    asyncio.run(scenario())


def test_an_idle_connection_that_ended_is_closed_though_its_answers_are_not_read(
    tmp_path, clock, monkeypatch,
):
    there = []
    begin = NameServer._begin

    def seen(self, *arguments):
        begin(self, *arguments)
        there[:] = [self]

    monkeypatch.setattr(NameServer, "_begin", seen)

    async def scenario():
        async with running(tmp_path, clock, connection_output_bytes_max=1 << 30,
                           connection_idle_ms=IDLE_MS) as port:
            broker = await Peer.connect(port)
            await broker.ask(registration([f"T-{number}" for number in range(5_000)]))
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as peer:
                asked = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
                peer.sendall(300 * encode(asked))
                await wait_until_async(
                    lambda: there[0].frames.memory_used > 1 << 16, "answers wait")
                peer.shutdown(socket.SHUT_WR)
                await wait_until_async(lambda: not there[0].connections, "all are closed")
                assert there[0].frames.memory_used < 1 << 16
    asyncio.run(scenario())


@pytest.mark.parametrize("nonsense", [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x16\x03\x01\x02\x00",
    b"\0\0\0\x06\0\0\0\x02{]",
    b"\0\0\0\x04\0\0\0\x05",
])
def test_nonsense_closes_its_own_connection_and_no_other(tmp_path, clock, nonsense):
    async def scenario():
        async with running(tmp_path, clock) as port:
            good, bad = await Peer.connect(port), await Peer.connect(port)
            await good.ask(registration(["T"]))
            bad.writer.write(nonsense)
            assert await bad.is_closed()
            assert await route_code(good, "T") == 0
            await good.close()
    asyncio.run(scenario())


def test_pipelined_requests_are_answered_in_order_in_their_own_encoding(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            asked = [request(206, codec=Codec(number % 2)) for number in range(500)]
            peer.writer.write(b"".join(encode(command) for command in asked))
            got = [await peer.receive() for _ in asked]
            assert [(c.opaque, c.codec) for c in got] == [(c.opaque, c.codec) for c in asked]
            await peer.close()
    asyncio.run(scenario())


@pytest.mark.slow
def test_a_peer_that_never_reads_stops_being_read(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock, connection_output_bytes_max=65_536) as port:
            peer = await Peer.connect(port)
            await peer.ask(registration([f"topic-{'x' * 100}-{n}" for n in range(2_000)]))
            lists = encode(request(206)) * 300          # 66 MB of answers, if all were made
            peer.writer.transport.set_write_buffer_limits(high=0)
            peer.reader._transport.pause_reading()
            peer.writer.write(lists)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(peer.writer.drain(), 0.5)
            other = await Peer.connect(port)
            assert await route_code(other, "T") == ResponseCode.TOPIC_NOT_EXIST
            peer.reader._transport.resume_reading()
            for _ in range(300):
                assert (await peer.receive()).code == 0
            await peer.close()
            await other.close()
    asyncio.run(scenario())


def test_connections_beyond_the_limit_are_refused(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock, connection_count_max=1) as port:
            first = await Peer.connect(port)
            await route_code(first, "T")
            second = await Peer.connect(port)
            assert await second.is_closed()
            assert await route_code(first, "T") == ResponseCode.TOPIC_NOT_EXIST
            await first.close()
    asyncio.run(scenario())


def test_an_address_has_so_many_connections_and_places_are_given_again(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock, address_connection_count=2) as port:
            for _ in range(3):
                peers = [await Peer.connect(port) for _ in range(2)]
                for peer in peers:
                    assert await route_code(peer, "T") == ResponseCode.TOPIC_NOT_EXIST
                more = await Peer.connect(port)
                assert await more.is_closed()
                for peer in peers:
                    await peer.close()
                await places_of(port, 2)
    asyncio.run(scenario())


def test_what_a_refused_connection_asks_is_not_done(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock, address_connection_count=1) as port:
            client = await Peer.connect(port)
            assert await route_code(client, "T") == ResponseCode.TOPIC_NOT_EXIST
            for number in range(20):
                broker = await Peer.connect(port)
                broker.writer.write(encode(registration(["T"], name=f"b-{number}")))
                assert await broker.is_closed()
            assert await route_code(client, "T") == ResponseCode.TOPIC_NOT_EXIST
            await client.close()
    asyncio.run(scenario())


async def places_of(port, count):
    """Wait until so many connections are taken again: the server hears of ends by and by."""
    async with asyncio.timeout(10):
        while True:
            peers = [await Peer.connect(port) for _ in range(count)]
            try:
                taken = [await route_code(peer, "T") for peer in peers]
            except (ConnectionError, EOFError):
                taken = []
            for peer in peers:
                await peer.close()
            if len(taken) == count:
                return


@pytest.mark.parametrize(("host", "network"), [
    ("10.0.0.7", "10.0.0.7"), ("::ffff:10.0.0.7", "10.0.0.7"),
    ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::/64"), ("fe80::1%eth0", "fe80::/64"), ("?", "?"),
])
def test_addresses_are_counted_by_what_one_client_has(host, network):
    assert network_of(host) == network


def test_key_values_survive_a_restart(tmp_path, clock):
    async def scenario():
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            for key in ("a", "b"):
                fields = {"namespace": "N", "key": key, "value": "é\n"}
                assert (await peer.ask(request(RequestCode.PUT_KV_CONFIG, fields))).code == 0
            await peer.ask(request(RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "b"}))
            await peer.close()
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            answer = await peer.ask(request(219, {"namespace": "N"}))
            assert fastjson.loads(answer.body) == {"table": {"a": "é\n"}}
            await peer.close()
    asyncio.run(scenario())


@pytest.mark.parametrize(("command", "code", "names"), [
    (request(100, {"namespace": "N", "value": "v"}), 1, "key"),
    (request(105), 1, "topic"),
    (request(104, {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": "x"}),
     1, "brokerId"),
    (request(103, {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": "0",
                   "bodyCrc32": "7"}, b"{}"), 1, "bodyCrc32"),
    (request(103, {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": "0"},
             b"{"), 1, "registration body"),
    (request(361), 3, " request type 361 not supported"),
    (request(10), 3, " request type 10 not supported"),
    (request(318, body=b"kvConfigPath=/tmp/x\n"), 16, "kvConfigPath"),
    (request(318, body=b"listenPort=1\n"), 16, "listenPort"),
    (request(318, body=b"kv_config_path=/tmp/x\n"), 16, "kv_config_path"),
    (request(318, body=b"runtime_config_path=/tmp/x\n"), 16, "runtime_config_path"),
    (request(318, body=b"orderMessageEnable=maybe\n"), 1, "orderMessageEnable"),
    (request(318, body=b"no separator\n"), 1, "line 1"),
])
def test_a_bad_request_is_answered_with_what_was_wrong(tmp_path, clock, command, code, names):
    async def scenario():
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            answer = await peer.ask(command)
            assert answer.code == code
            assert names in answer.remark
            await peer.close()
    asyncio.run(scenario())


def test_order_configuration_enters_routes_when_it_is_switched_on(tmp_path, clock):
    async def ask_order(peer):
        return decode_route((await peer.ask(request(105, {"topic": "T"}))).body).order_conf

    async def scenario():
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            await peer.ask(registration(["T"]))
            await peer.ask(request(100, {
                "namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}))
            assert await ask_order(peer) is None
            assert (await peer.ask(request(318, body=b"orderMessageEnable=true\nx=y\n"))).code == 0
            assert await ask_order(peer) == "broker-a:4"
            await peer.close()
        async with running(tmp_path, clock) as port:
            peer = await Peer.connect(port)
            shown = (await peer.ask(request(319))).body.decode().splitlines()
            assert "orderMessageEnable=true" in shown
            await peer.close()
    asyncio.run(scenario())
