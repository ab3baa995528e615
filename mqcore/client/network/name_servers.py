"""The name servers that a client asks: failover between them, and finding them by HTTP.

client.md 1.5, remoting.md 2.7; RocketMQ 4.9.8: NettyRemotingClient, TopAddressing.
"""
from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from mqcore.client.config import split_addresses
from mqcore.client.core.options import split_address
from mqcore.client.errors import (
    CODE_NO_NAME_SERVER,
    ClientError,
    ConfigError,
    ConnectError,
    NoRouteError,
    RemotingError,
    RocketMQError,
    broker_error,
)
from mqcore.client.network.pool import ConnectionPool, client_request
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.topics import BodyError, TopicRoute, decode_route, has_brokers

DISCOVERY_PORT = 8080
DISCOVERY_PATH = "/rocketmq/nsaddr"
_ANSWER_BYTES_MAX = 64 * 1024
_OF_EVERY_NAME_SERVER = frozenset({
    RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
})


class NameServers:
    """Asks one of several name servers: the same one while it answers, else the next."""

    def __init__(self, addresses: str | Sequence[str], pool: ConnectionPool) -> None:
        self._addresses = list(split_addresses(addresses))
        self._pool = pool
        self._index = random.randrange(len(self._addresses)) if self._addresses else 0

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses)

    def update(self, addresses: str | Sequence[str]) -> bool:
        """Replace the list; whether it has other members. The order is drawn anew then, and the
        chosen one stays if it is in it. Raises ConfigError for a bad address."""
        new = list(split_addresses(addresses))
        if not new or sorted(new) == sorted(self._addresses):
            return False
        chosen = self._addresses[self._index % len(self._addresses)] if self._addresses else ""
        random.shuffle(new)
        self._addresses = new
        self._index = new.index(chosen) if chosen in new else 0
        return True

    async def invoke(self, command: Command, *, timeout: float = 3.0) -> Command:
        """The answer of the first name server that gives one; at most one pass over all.

        timeout   seconds for the whole pass; each server gets its share of what is left
        Raises NoRouteError 10004 without any address, else the last RemotingError.
        """
        if not self._addresses:
            raise NoRouteError("no name server address", CODE_NO_NAME_SERVER)
        deadline = asyncio.get_running_loop().time() + timeout
        failure: RemotingError | None = None
        count = len(self._addresses)
        for tried in range(count):
            index, address = self._index, self._addresses[self._index % len(self._addresses)]
            left = deadline - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(max(left, 0.001)):
                    answer = await self._pool.invoke(
                        address, command, timeout=max(left / (count - tried), 0.001))
                if (answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                        and command.code in _OF_EVERY_NAME_SERVER):
                    raise ConfigError(
                        f"{address} is no name server: it does not know where topics are, as"
                        " brokers do not. A name server listens at another port, 9876 as a rule")
                return answer
            except RemotingError as error:
                failure = error
            except TimeoutError:
                failure = ConnectError(f"no connection to name server {address} in time",
                                       broker=address)
            if self._index == index:            # no other call moved on meanwhile
                self._index += 1
        assert failure is not None
        raise failure

    async def route(self, topic: str, *, timeout: float = 3.0) -> TopicRoute | None:
        """Where a topic is; None when no name server knows it.

        Raises RemotingError, BrokerError for another code, ClientError for an answer that cannot
        be read.
        """
        request = client_request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        answer = await self.invoke(request, timeout=timeout)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, "name server", topic=topic)
        try:
            return decode_route(answer.body)
        except BodyError as error:
            raise ClientError(f"the route of {topic} cannot be read: {error}",
                              topic=topic) from error

    async def has_brokers(self, *, timeout: float = 3.0) -> bool:
        """Whether any broker is registered, as far as a name server says so."""
        try:
            answer = await self.invoke(
                client_request(RequestCode.GET_BROKER_CLUSTER_INFO, {}), timeout=timeout)
            return answer.code == ResponseCode.SUCCESS and has_brokers(answer.body)
        except (RocketMQError, BodyError):
            return False


async def discover(domain: str, unit_name: str = "", *, timeout: float = 3.0) -> tuple[str, ...]:
    """The name servers that `http://domain:8080/rocketmq/nsaddr` names.

    domain   a host, or host:port
    Raises ConnectError when there is no answer in `timeout` seconds, ClientError for another one.
    """
    host, port = split_address(domain) if ":" in domain else (domain, DISCOVERY_PORT)
    path = f"{DISCOVERY_PATH}-{unit_name}?nofix=1" if unit_name else DISCOVERY_PATH
    try:
        async with asyncio.timeout(timeout):
            answer = await _get(host, port, path)
    except (OSError, TimeoutError) as error:
        raise ConnectError(f"asking {domain} for name servers: {error!r}",
                           broker=domain) from error
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)
    if len(status) < 2 or status[1] != b"200":
        raise ClientError(f"asking {domain} for name servers: {head[:80]!r}")
    lines = body.decode("ascii", "replace").split("\n", 1)
    return split_addresses(lines[0].strip())


async def _get(host: str, port: int, path: str) -> bytes:
    """A server's answer to one HTTP/1.0 GET, head and body."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode("ascii"))
        answer = b""
        while len(answer) < _ANSWER_BYTES_MAX:
            piece = await reader.read(_ANSWER_BYTES_MAX - len(answer))
            if not piece:
                break
            answer += piece
        return answer
    finally:
        writer.close()
