"""A broker's calls to its name servers: register, unregister, ask for its version there.

broker.md 1.5, RocketMQ 4.9.8: BrokerOuterAPI.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from mqcore.client.errors import RocketMQError, broker_error
from mqcore.client.network.pool import ConnectionPool
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, Ext, request
from mqcore.wire.topics import BodyError, DataVersion

REGISTER_TIMEOUT_S = 6.0
UNREGISTER_TIMEOUT_S = 3.0

log: Final = logging.getLogger("mqcore.client")


class RegisterResult(Struct, frozen=True):
    """One name server's answer: a slave's master, and the order table (None: no such)."""

    name_server: str
    master_address: str | None
    ha_address: str | None
    order_topics: dict[str, str] | None


class Registration:
    """Keeps one connection to each name server: its end is how they notice ours."""

    def __init__(self, pool: ConnectionPool | None = None,
                 sign: Callable[[str, Command], None] | None = None) -> None:
        """sign: signs a request to an address, last of all changes to it."""
        self._pool = pool or ConnectionPool()
        self._sign = sign

    def _request(self, address: str, code: RequestCode, ext: Ext, body: bytes = b"", *,
                 oneway: bool = False) -> Command:
        command = request(code, ext, body, oneway=oneway)
        if self._sign is not None:
            self._sign(address, command)
        return command

    async def register(
        self, name_servers: Sequence[str], ext: Ext, body: bytes, *, oneway: bool = False,
        timeout: float = REGISTER_TIMEOUT_S,
    ) -> list[RegisterResult]:
        """Register with all name servers at once; results in the order in which they came.

        `ext` and `body` are those of REGISTER_BROKER (remoting.md 4.7.1). A name server that fails
        is logged and left out: registering is repeated anyway. One-way calls return nothing.
        """
        results: list[RegisterResult] = []

        async def one(address: str) -> None:
            command = self._request(address, RequestCode.REGISTER_BROKER, ext, body,
                                    oneway=oneway)
            try:
                if oneway:
                    await self._pool.send_oneway(address, command, timeout=timeout)
                else:
                    answer = await self._pool.invoke(address, command, timeout=timeout)
                    results.append(_register_result(address, answer))
            except (RocketMQError, ValueError) as error:
                log.warning("registering with name server %s failed: %s", address, error)

        await asyncio.gather(*(one(address) for address in name_servers))
        return results

    async def needs_registration(
        self, name_servers: Sequence[str], identity: Ext, version: DataVersion, *,
        timeout: float = REGISTER_TIMEOUT_S,
    ) -> bool:
        """Ask with 322 whether any name server has another version, or cannot say.

        `identity` is brokerName, brokerAddr, clusterName and brokerId.
        """
        body = fastjson.dumps(version.as_json())

        async def one(address: str) -> bool:
            command = self._request(address, RequestCode.QUERY_DATA_VERSION, identity, body)
            try:
                answer = await self._pool.invoke(address, command, timeout=timeout)
                if answer.code != ResponseCode.SUCCESS or not answer.body:
                    return True
                stored = DataVersion.from_json(fastjson.loads(answer.body))
            except (RocketMQError, ValueError) as error:
                log.warning("asking name server %s for our version failed: %s", address, error)
                return True
            return (answer.ext or {}).get("changed") != "false" or stored != version

        return any(await asyncio.gather(*(one(address) for address in name_servers)))

    async def unregister(
        self, name_servers: Sequence[str], identity: Ext, *,
        timeout: float = UNREGISTER_TIMEOUT_S,
    ) -> None:
        """Tell all name servers that this broker goes; failures are logged."""
        async def one(address: str) -> None:
            try:
                answer = await self._pool.invoke(
                    address, self._request(address, RequestCode.UNREGISTER_BROKER, identity),
                    timeout=timeout,
                )
                if answer.code != ResponseCode.SUCCESS:
                    raise broker_error(answer.code, answer.remark, address)
            except (RocketMQError, ValueError) as error:
                log.warning("unregistering from name server %s failed: %s", address, error)

        await asyncio.gather(*(one(address) for address in name_servers))

    async def close(self) -> None:
        """Close the connections; name servers then drop the broker."""
        await self._pool.close()


def _register_result(address: str, answer: Command) -> RegisterResult:
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address)
    ext = answer.ext or {}
    order_topics = None
    if answer.body:
        document = fastjson.loads(answer.body)
        table = document.get("table") if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise BodyError("registration answer: table: expected an object")
        order_topics = {str(topic): str(value) for topic, value in table.items()}
    return RegisterResult(address, ext.get("masterAddr"), ext.get("haServerAddr"), order_topics)
