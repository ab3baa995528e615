"""Connections, the pool and name server failover against peers that behave and that do not."""
import asyncio
import contextlib

import pytest

from mqcore.client.errors import (
    ClientError,
    ConnectError,
    RequestTimeout,
)
from mqcore.client.network.connection import Connection
from mqcore.client.network.name_servers import NameServers
from mqcore.client.network.pool import ConnectionPool
from mqcore.client.network.registration import Registration
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import decode, encode, request, response
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable, encode_registration
from tests.namesrv.harness import Clock, name_server, settings_in

NOBODY = "127.0.0.1:1"


@contextlib.asynccontextmanager
async def peer(serve):
    """A server whose connections run `serve(reader, writer)`; yields its port."""
    tasks = set()

    async def run(reader, writer):
        tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError,
                                 asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()


async def read(reader):
    length = int.from_bytes(await reader.readexactly(4), "big")
    return decode(await reader.readexactly(length))


async def silent(reader, writer):
    await reader.read()


async def reversing(reader, writer):
    """Answers three requests in reverse order."""
    asked = [await read(reader) for _ in range(3)]
    for command in reversed(asked):
        writer.write(encode(response(command, command.code)))
    await reader.read()


def test_answers_find_their_callers_in_any_order():
    async def scenario():
        async with peer(reversing) as port:
            connection = await Connection.open("127.0.0.1", port)
            answers = await asyncio.gather(*(connection.invoke(request(c)) for c in (7, 8, 9)))
            assert [answer.code for answer in answers] == [7, 8, 9]
            await connection.close()
    asyncio.run(scenario())


def test_a_call_without_answer_times_out_and_the_next_one_works():
    async def late(reader, writer):
        await read(reader)
        writer.write(encode(response(await read(reader), 0)))
        await reader.read()

    async def scenario():
        async with peer(late) as port:
            connection = await Connection.open("127.0.0.1", port)
            with pytest.raises(RequestTimeout):
                await connection.invoke(request(1), timeout=0.03)
            assert (await connection.invoke(request(2))).code == 0
            assert connection.pending_count == 0
            await connection.close()
    asyncio.run(scenario())


def test_calls_that_wait_fail_when_the_connection_ends():
    async def hang_up(reader, writer):
        await read(reader)

    async def scenario():
        async with peer(hang_up) as port:
            connection = await Connection.open("127.0.0.1", port)
            with pytest.raises(ConnectError):
                await connection.invoke(request(1))
            with pytest.raises(ConnectError):
                await connection.invoke(request(1))
    asyncio.run(scenario())


def test_nonsense_from_the_peer_closes_the_connection():
    async def babble(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request")
        await reader.read()

    async def scenario():
        async with peer(babble) as port:
            connection = await Connection.open("127.0.0.1", port)
            with pytest.raises(ConnectError):
                await connection.invoke(request(1))
            assert not connection.is_open
    asyncio.run(scenario())


def test_requests_of_the_peer_are_answered_and_unknown_ones_refused():
    got = []

    async def asking(reader, writer):
        for code in (221, 999):
            writer.write(encode(request(code)))
            got.append(await read(reader))

    async def handler(command, address):
        return response(command, 0, "mine") if command.code == 221 else None

    async def scenario():
        async with peer(asking) as port:
            connection = await Connection.open("127.0.0.1", port, on_request=handler)
            async with asyncio.timeout(10):
                while len(got) < 2:
                    await asyncio.sleep(0.005)
            await connection.close()
    asyncio.run(scenario())

    assert [(answer.code, answer.is_response) for answer in got] == [
        (0, True), (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True)
    ]


def test_a_peer_that_asks_and_does_not_read_fills_no_memory():
    """64 of its questions wait until it reads; what it asks besides has no answer."""
    answer, asked, asked_at_once = bytes(1 << 16), 2048, 64
    heard = [0]

    class Hearing(Connection):
        def _serve(self, command):
            super()._serve(command)
            heard[0] += 1

    async def asking(reader, writer):
        writer.transport.pause_reading()
        for sent in range(asked_at_once, asked + 1, asked_at_once):
            writer.write(encode(request(221)) * asked_at_once)
            while heard[0] < sent:
                await asyncio.sleep(0)
        await asyncio.Event().wait()

    async def handler(command, address):
        return response(command, 0, body=answer)

    async def scenario():
        async with peer(asking) as port, asyncio.timeout(60):
            connection = await Hearing.open("127.0.0.1", port, on_request=handler)
            while heard[0] < asked:
                await asyncio.sleep(0)
            held = connection._transport.get_write_buffer_size() + len(connection.out)
            assert connection.is_open
            connection.abort()
            return held

    assert asyncio.run(scenario()) < 10 * 2**20     # 4 MiB, and what 64 have waited with


def test_the_pool_shares_one_connection_and_replaces_a_closed_one():
    accepted = []

    async def count(reader, writer):
        accepted.append(1)
        while True:
            command = await read(reader)
            if command.code == 2:
                return
            writer.write(encode(response(command, 0)))

    async def scenario():
        async with peer(count) as port:
            pool = ConnectionPool()
            address = f"127.0.0.1:{port}"
            await asyncio.gather(*(pool.invoke(address, request(1)) for _ in range(20)))
            assert len(accepted) == 1
            with pytest.raises(ConnectError):
                await pool.invoke(address, request(2))
            await pool.invoke(address, request(1))
            assert len(accepted) == 2
            await pool.close()
            with pytest.raises(ClientError):
                await pool.invoke(address, request(1))
    asyncio.run(scenario())


def test_a_late_answer_closes_a_connection_that_is_silent_and_no_other():
    """Who waits for a heartbeat that takes long costs others no answer."""
    accepted = []

    async def answer_some(reader, writer):
        accepted.append(1)
        while True:
            command = await read(reader)
            if command.code == 1:
                writer.write(encode(response(command, 0)))

    async def scenario():
        async with peer(answer_some) as port:
            pool = ConnectionPool()
            address = f"127.0.0.1:{port}"
            await pool.invoke(address, request(1))
            late = asyncio.create_task(pool.invoke(address, request(2), timeout=1.0))
            await asyncio.sleep(0)                     # it is asked
            await pool.invoke(address, request(1))
            with pytest.raises(RequestTimeout):
                await late
            await pool.invoke(address, request(1))
            assert len(accepted) == 1
            with pytest.raises(RequestTimeout):
                await pool.invoke(address, request(2), timeout=0.1)
            await pool.invoke(address, request(1))
            assert len(accepted) == 2
            await pool.close()
    asyncio.run(scenario())


def test_another_name_server_is_asked_when_one_does_not_answer(tmp_path):
    async def scenario():
        async with peer(silent) as mute, name_server(settings_in(tmp_path), Clock()) as port:
            for dead in (NOBODY, f"127.0.0.1:{mute}"):
                pool = ConnectionPool()
                servers = NameServers([dead, f"127.0.0.1:{port}"], pool)
                for _ in range(2):
                    assert await servers.route("T", timeout=0.1) is None
                await pool.close()
            pool = ConnectionPool()
            with pytest.raises(ConnectError):
                await NameServers(NOBODY, pool).route("T")
            with pytest.raises(ClientError):
                await NameServers("", pool).route("T")
            await pool.close()
    asyncio.run(scenario())


def test_a_broker_registers_is_asked_for_its_version_and_unregisters(tmp_path):
    table = TopicTable(DataVersion(3, 4), {"T": TopicConfig("T", 4, 4)})
    identity = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:1", "clusterName": "C",
                "brokerId": "0"}
    ext = {**identity, "haServerAddr": "10.0.0.1:2", "compressed": "false"}

    async def scenario():
        async with name_server(settings_in(tmp_path), Clock()) as port:
            addresses = [f"127.0.0.1:{port}", NOBODY]
            client = Registration()
            assert await client.needs_registration(addresses[:1], identity, table.version)
            results = await client.register(addresses, ext, encode_registration(table))
            assert [(r.name_server, r.master_address, r.order_topics) for r in results] == [
                (addresses[0], None, None)
            ]
            slave = {**ext, "brokerId": "1", "brokerAddr": "10.0.0.2:1"}
            results = await client.register(addresses[:1], slave, b"")
            assert (results[0].master_address, results[0].ha_address) == (
                "10.0.0.1:1", "10.0.0.1:2"
            )
            assert not await client.needs_registration(addresses[:1], identity, table.version)
            assert await client.needs_registration(addresses, identity, table.version)
            assert await client.needs_registration(addresses[:1], identity, DataVersion(4, 4))
            pool = ConnectionPool()
            servers = NameServers(addresses[:1], pool)
            assert (await servers.route("T")).queues[0].write_queue_count == 4
            await client.unregister(addresses, identity)
            await client.unregister(addresses[:1], {**slave})
            assert await servers.route("T") is None
            await pool.close()
            await client.close()
    asyncio.run(scenario())
