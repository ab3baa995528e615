"""Connections by address: one each, opened when first needed."""
from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TypeVar

from mqcore.client.core.options import split_address
from mqcore.client.errors import ClientError, ClosedError, RequestTimeout
from mqcore.client.network.connection import (
    CONNECT_TIMEOUT_S,
    Connection,
    LostHandler,
    RequestHandler,
    cannot_connect,
)
from mqcore.wire.codes import LanguageCode, RequestCode
from mqcore.wire.command import Command, Ext
from mqcore.wire.command import request as make_request

ADDRESS_COUNT_MAX = 1_024

P = TypeVar("P", bound=asyncio.BaseProtocol)


def client_request(
    code: RequestCode, ext: Ext | None = None, body: bytes = b"", *, oneway: bool = False
) -> Command:
    """A request of this library: JSON header, language PYTHON, protocol version 4.9.8."""
    command = make_request(code, ext, body, oneway=oneway)
    command.language = LanguageCode.PYTHON
    return command


class ConnectionPool:
    """Opens, shares and closes connections; calls to one address never open two at a time."""

    def __init__(
        self, on_request: RequestHandler | None = None, *,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        tls: ssl.SSLContext | Callable[[str], ssl.SSLContext | None] | None = None,
        prepare: Callable[[Command], None] | None = None,
        on_open: Callable[[str], None] | None = None, on_lost: LostHandler | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        """
        on_request       answers requests of the peers; None: code 3
        connect_timeout  seconds for one connection
        tls              what connections are made with, or a function that says it of an address;
                         None: in the clear
        prepare          changes each request before it is written: language, signature
        on_open          hears the address of each connection that was opened, on_lost its end
        elsewhere        address -> where to connect in its place
        """
        self._on_request = on_request
        self._connect_timeout = connect_timeout
        self._tls = tls
        self.prepare = prepare
        self._on_open = on_open
        self._on_lost = on_lost
        self._elsewhere = elsewhere or {}
        self._connections: dict[str, Connection] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._closed = False

    def is_open(self, address: str) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def open_connection(self, address: str) -> Connection | None:
        """The connection to `host:port` if there is an open one."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    def cork(self) -> None:
        """Let frames wait for `uncork`, which follows in the same call of the loop."""
        for connection in self._connections.values():
            connection.cork()

    def uncork(self) -> None:
        """Write the frames that came since `cork`."""
        for connection in self._connections.values():
            connection.uncork()

    async def connection(self, address: str) -> Connection:
        """An open connection to `host:port`; raises ConnectError."""
        current = self._connections.get(address)
        if current is not None and current.is_open:
            return current
        self._forget_closed()
        if len(self._connections) >= ADDRESS_COUNT_MAX:
            raise ClientError(f"more than {ADDRESS_COUNT_MAX} connections")
        async with self._locks.setdefault(address, asyncio.Lock()):
            current = self._connections.get(address)
            if current is None or not current.is_open:
                if self._closed:
                    raise ClosedError("the client is closed")
                host, port = self._place(address)
                current = await Connection.open(
                    host, port, on_request=self._on_request, timeout=self._connect_timeout,
                    tls=self._context(address), on_lost=self._on_lost,
                )
                self._connections[address] = current
                if self._on_open is not None:
                    self._on_open(address)
            return current

    async def own_connection(self, address: str, make: Callable[[], P]) -> P:
        """A connection beside the shared ones, made in the same way; the caller closes it.

        make   gives its protocol, which is returned. Raises ConnectError.
        """
        host, port = self._place(address)
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, protocol = await asyncio.get_running_loop().create_connection(
                    make, host, port, ssl=self._context(address))
        except (OSError, TimeoutError, ValueError) as error:
            raise cannot_connect(address, error) from error
        return protocol

    def _place(self, address: str) -> tuple[str, int]:
        return split_address(self._elsewhere.get(address, address))

    def _context(self, address: str) -> ssl.SSLContext | None:
        if self._tls is None or isinstance(self._tls, ssl.SSLContext):
            return self._tls
        return self._tls(address)

    def _forget_closed(self) -> None:
        for address, connection in list(self._connections.items()):
            if not connection.is_open:
                del self._connections[address]
        for address, lock in list(self._locks.items()):
            if address not in self._connections and not lock.locked():
                del self._locks[address]

    async def invoke(
        self, address: str, command: Command, *, timeout: float = 3.0,
        close_on_timeout: bool = True,
    ) -> Command:
        """Call `address`. A late answer closes the connection if nothing else came on it meanwhile,
        so that the next call starts afresh (Java's clientCloseSocketIfTimeout closes one that
        answers others, too); long polls switch that off. Raises RemotingError."""
        connection = await self.connection(address)
        if self.prepare is not None:
            self.prepare(command)
        began = asyncio.get_running_loop().time()
        try:
            return await connection.invoke(command, timeout=timeout)
        except RequestTimeout:
            if close_on_timeout and connection.heard_at < began:
                await connection.close()
            raise

    async def send_oneway(self, address: str, command: Command, *, timeout: float = 3.0) -> None:
        """Write a request that gets no answer; raises RemotingError."""
        connection = await self.connection(address)
        if self.prepare is not None:
            self.prepare(command)
        await connection.send_oneway(command, timeout=timeout)

    async def local_host(self, address: str) -> str:
        """The address of this machine on the way to `address`."""
        return (await self.connection(address)).local_host

    async def close(self) -> None:
        """Close all connections; the pool opens no new ones."""
        self._closed = True
        await asyncio.gather(*(c.close() for c in self._connections.values()))
        self._connections.clear()
