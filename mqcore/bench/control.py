"""
The few blocking requests around a measurement: routes, topics, offsets, heartbeats.

One socket, one request at a time. The measured connections are made here too and then handed to
the native engines.
"""
from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from dataclasses import dataclass

from mqcore.bench.tls_socket import TlsSocket
from mqcore.client import Credentials
from mqcore.client.core.signature import sign, signer
from mqcore.client.errors import ClientError, RocketMQError
from mqcore.client.network.name_servers import NameServers
from mqcore.client.network.pool import ConnectionPool, client_request
from mqcore.wire import fastjson
from mqcore.wire.codes import FRAME_LENGTH_MAX, MASTER_ID, RequestCode, ResponseCode
from mqcore.wire.command import Command, Ext, decode, encode, request
from mqcore.wire.ids import client_id
from mqcore.wire.topics import BodyError

Wire = socket.socket | TlsSocket
TIMEOUT_S = 10.0
STORED_TIMEOUT_S = 5.0
STORED_POLL_S = 0.05
PERM_READ_WRITE = 6
_LENGTH = struct.Struct(">i")


class BenchError(RuntimeError):
    """The broker or name server cannot be measured as asked; the text says what it answered."""


def parse_addr(addr: str) -> tuple[str, int]:
    """`host:port` as a pair; raises ValueError that names the address."""
    host, separator, port = addr.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"address {addr!r}: expected host:port")
    return host.strip("[]"), int(port)


def connect(addr: str, *, tls: bool = False) -> Wire:
    """A blocking connection without Nagle's delay; raises BenchError when nobody listens."""
    try:
        sock = socket.create_connection(parse_addr(addr), timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return TlsSocket(sock) if tls else sock
    except OSError as error:
        raise BenchError(f"cannot connect to {addr}: {error}") from error


def invoke_on(sock: Wire, command: Command, credentials: Credentials | None = None) -> Command:
    """
    Send one request and wait for its answer; requests of the peer to us are skipped.

    credentials: it is signed with them.
    """
    if credentials is not None:
        sign(command, credentials)
    sock.sendall(encode(command))
    while True:
        (length,) = _LENGTH.unpack(_read_exactly(sock, _LENGTH.size))
        if not 4 <= length <= FRAME_LENGTH_MAX:
            raise BenchError(f"frame length {length}: expected 4 to {FRAME_LENGTH_MAX}")
        answer = decode(_read_exactly(sock, length))
        if answer.is_response and answer.opaque == command.opaque:
            return answer


def _read_exactly(sock: Wire, size: int) -> bytes:
    parts = []
    while size:
        try:
            part = sock.recv(min(size, 1 << 20))
        except TimeoutError as error:
            raise BenchError(f"no answer within {TIMEOUT_S:g} s") from error
        if not part:
            raise BenchError("the peer closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def call(addr: str, code: int, ext: Ext | None = None, body: bytes = b"", *,
         tls: bool = False, credentials: Credentials | None = None) -> Command:
    """One request on a connection of its own; raises BenchError unless the answer's code is 0."""
    with connect(addr, tls=tls) as sock:
        answer = invoke_on(sock, request(code, ext, body), credentials)
    if answer.code:
        raise BenchError(f"{addr} answered request {code} with {answer.code}: {answer.remark}")
    return answer


@dataclass(frozen=True)
class Target:
    """
    One broker and how many queues it has for the topic; tls: it is reached by TLS.

    credentials: requests are signed with them.
    """

    addr: str
    topic: str
    queue_count: int
    tls: bool = False
    credentials: Credentials | None = None


def find_target(
    topic: str, *, broker: str | None, namesrv: str | None, queues: int, create: bool = True,
    tls: bool = False, credentials: Credentials | None = None,
) -> Target:
    """
    Where to send: the broker given, or the one that the name server has the topic on.

    A load runs against one broker; of several masters with the topic the first by name is taken.
    create: make or change the topic so that it has `queues` queues (code 17); otherwise it is used
    with the queues that its route says.
    """
    if broker is None:
        if namesrv is None:
            raise BenchError("neither a broker nor a name server was given")
        try:
            broker, routed = asyncio.run(_locate(namesrv, topic, create, credentials))
        except (RocketMQError, BodyError) as error:
            raise BenchError(f"name server {namesrv}: {error}") from error
        queues = queues if create else routed
    if create:
        create_topic(broker, topic, queues, tls=tls, credentials=credentials)
    return Target(broker, topic, queues, tls, credentials)


async def _locate(
    namesrv: str, topic: str, create: bool, credentials: Credentials | None,
) -> tuple[str, int]:
    """A master's address and the topic's queues there; any master for a topic yet to be made."""
    pool = ConnectionPool(prepare=signer(credentials))
    try:
        names = NameServers(namesrv, pool)
        route = await names.route(topic)
        if route is not None:
            masters = {data.broker_name: data.addresses[MASTER_ID]
                       for data in route.brokers if MASTER_ID in data.addresses}
            for data in sorted(route.queues, key=lambda data: data.broker_name):
                if data.broker_name in masters:
                    count = min(data.read_queue_count, data.write_queue_count)
                    return masters[data.broker_name], count
        elif create:
            answer = await names.invoke(client_request(RequestCode.GET_BROKER_CLUSTER_INFO))
            return _first_master(answer.body), 0
    finally:
        await pool.close()
    raise ClientError(f"no master broker has topic {topic}")


def _first_master(cluster_info: bytes) -> str:
    """The first broker with id 0 in the body of GET_BROKER_CLUSTER_INFO."""
    info = fastjson.loads(cluster_info)
    for data in (info.get("brokerAddrTable") or {}).values():
        addrs = {str(broker_id): addr for broker_id, addr in data["brokerAddrs"].items()}
        if str(MASTER_ID) in addrs:
            return str(addrs[str(MASTER_ID)])
    raise ClientError("no master broker is registered")


def create_topic(
    broker: str, topic: str, queues: int, *, tls: bool = False,
    credentials: Credentials | None = None,
) -> None:
    """UPDATE_AND_CREATE_TOPIC (17) with `queues` read and write queues."""
    call(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": str(PERM_READ_WRITE),
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }, tls=tls, credentials=credentials)


def queue_bounds(target: Target) -> list[tuple[int, int]]:
    """(min, max) offset of each queue (codes 31 and 30)."""
    bounds = []
    for queue in range(target.queue_count):
        ext: Ext = {"topic": target.topic, "queueId": str(queue)}
        low, high = (
            int((call(target.addr, code, dict(ext), tls=target.tls,
                      credentials=target.credentials).ext or {})["offset"] or 0)
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        )
        bounds.append((max(low, 0), max(high, 0)))
    return bounds


def stored_count(target: Target) -> int:
    """How many messages the topic's queues hold."""
    return sum(high - low for low, high in queue_bounds(target))


def wait_for_stored(target: Target, total: int) -> int:
    """
    How many messages the queues hold once it is `total`, or after STORED_TIMEOUT_S.

    Queues are built behind the commit log, so the last messages appear a little later.
    """
    deadline = time.monotonic() + STORED_TIMEOUT_S
    while (found := stored_count(target)) < total and time.monotonic() < deadline:
        time.sleep(STORED_POLL_S)
    return found


def heartbeat(sock: Wire, target: Target, *, producer: str, consumer: str | None = None,
              version_ms: int = 0) -> None:
    """Register this connection's client (code 34) as producer and, if given, as consumer group."""
    data: dict[str, object] = {
        "clientID": client_id(instance=f"bench#{sock.fileno()}#{time.monotonic_ns()}"),
        "producerDataSet": [{"groupName": producer}], "consumerDataSet": [],
    }
    if consumer:
        subscription = {
            "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
            "subVersion": version_ms, "tagsSet": [], "topic": target.topic,
        }
        data["consumerDataSet"] = [{
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "groupName": consumer, "messageModel": "CLUSTERING",
            "subscriptionDataSet": [subscription], "unitMode": False,
        }]
    answer = invoke_on(sock, request(RequestCode.HEART_BEAT, None, json.dumps(data).encode()),
                       target.credentials)
    if answer.code != ResponseCode.SUCCESS:
        raise BenchError(f"heartbeat answered with {answer.code}: {answer.remark}")


def open_connections(
    target: Target, count: int, *, producer: str, consumer: str | None = None,
    with_heartbeat: bool = True, version_ms: int = 0,
) -> list[Wire]:
    """`count` connections, registered by heartbeat and then switched to non-blocking."""
    sockets: list[Wire] = []
    try:
        for _ in range(count):
            sock = connect(target.addr, tls=target.tls)
            sockets.append(sock)
            if with_heartbeat:
                heartbeat(sock, target, producer=producer, consumer=consumer,
                          version_ms=version_ms)
            sock.setblocking(False)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets
