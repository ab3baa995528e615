"""
A connection of one task: requests are written one behind the other, answers are waited for.

It blocks, in the task's own thread: a hand-over to an event loop's thread would cost more than the
reading of an answer.
"""
from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import msgspec

from mqcore.client.config import ClientConfig
from mqcore.client.core.options import split_address
from mqcore.client.core.signature import sign
from mqcore.client.errors import ConnectError, RequestTimeout
from mqcore.spark.topics.idle import Idle
from mqcore.wire.codes import (
    FLAG_RESPONSE,
    FRAME_LENGTH_MAX,
    HEADER_WORD_SIZE,
    LENGTH_WORD_SIZE,
)
from mqcore.wire.command import Command, FrameError, decode, encode

_BUFFER_BYTES = 1 << 20
_ROOM_MIN = 128 << 10               # less than that at its end, and what is left moves to its front
_OPAQUE_END = 1 << 30
_WORDS = Struct(">ii")


class Answer(NamedTuple):
    """What a broker answered."""

    opaque: int
    code: int
    remark: str
    ext: dict[str, str | None]
    body: bytes

    def number(self, name: str) -> int:
        """A field that is a number; -1 when it was not said."""
        text = self.ext.get(name)
        return int(text) if text else -1


class _Head(msgspec.Struct):
    code: int
    opaque: int
    flag: int
    remark: str | None = None
    ext: dict[str, str | None] | None = msgspec.field(name="extFields", default=None)


_decode_head = msgspec.json.Decoder(_Head, strict=False).decode


class Link:
    """One connection; `error` says why it cannot be used any more."""

    def __init__(self, address: str, config: ClientConfig) -> None:
        """Connects; raises ConnectError."""
        self.address = address
        self._opaques = itertools.count(1)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._begin = self._end = 0
        host, port = split_address(address)
        try:
            plain = socket.create_connection((host, port), config.connect_timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = config.ssl_context()
            self._socket = plain if context is None else _secured(context, plain, host)
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error}", broker=address) from error

    def next_opaque(self) -> int:
        """A number for a request, which its answer has, too."""
        return next(self._opaques) % _OPAQUE_END

    def write(self, frames: bytes | bytearray, timeout: float) -> None:
        """Write whole frames; raises ConnectError, after which the link is of no use."""
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(frames)
        except OSError as error:
            raise self._broken(error) from error

    def answer(self, timeout: float) -> Answer:
        """The next answer. Raises RequestTimeout, ConnectError: the link is of no use then."""
        while True:
            found = self._frame()
            if found is not None:
                return found
            self._receive(timeout)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    # -- inside -----------------------------------------------------------------------------------

    def _broken(self, error: OSError) -> ConnectError:
        return ConnectError(f"connection to {self.address} broke: {error}", broker=self.address,
                            stored=None)

    def _receive(self, timeout: float) -> None:
        if len(self._buffer) - self._end < _ROOM_MIN:
            left = self._buffer[self._begin:self._end]
            if len(self._buffer) - len(left) < _ROOM_MIN:
                self._buffer = bytearray(2 * len(self._buffer))     # for one frame
            self._buffer[:len(left)] = left
            self._begin, self._end = 0, len(left)
        try:
            self._socket.settimeout(timeout)
            with memoryview(self._buffer) as view:
                count = self._socket.recv_into(view[self._end:])
        except TimeoutError as error:
            raise RequestTimeout(f"no answer from {self.address} within {timeout:g} s",
                                 broker=self.address, stored=None) from error
        except OSError as error:
            raise self._broken(error) from error
        if not count:
            raise self._broken(ConnectionResetError("the broker closed it"))
        self._end += count

    def _frame(self) -> Answer | None:
        """The next whole answer that was received; requests of the broker are passed over."""
        while self._end - self._begin >= LENGTH_WORD_SIZE + HEADER_WORD_SIZE:
            length, word = _WORDS.unpack_from(self._buffer, self._begin)
            if not HEADER_WORD_SIZE <= length <= FRAME_LENGTH_MAX:
                raise self._broken(ConnectionError(f"a frame of {length} bytes"))
            end = self._begin + LENGTH_WORD_SIZE + length
            if end > self._end:
                return None
            start = self._begin + LENGTH_WORD_SIZE
            self._begin = end
            with memoryview(self._buffer) as view:
                found = self._read(view[start:end], word)
            if self._begin == self._end:
                self._begin = self._end = 0
            if found is not None:
                return found
        return None

    def _read(self, frame: memoryview, word: int) -> Answer | None:
        header_end = HEADER_WORD_SIZE + word
        if 0 <= word <= len(frame) - HEADER_WORD_SIZE:
            try:
                head = _decode_head(frame[HEADER_WORD_SIZE:header_end])
            except msgspec.DecodeError:
                return self._read_command(frame)
            if not head.flag & FLAG_RESPONSE:
                return None
            return Answer(head.opaque, head.code, head.remark or "", head.ext or {},
                          bytes(frame[header_end:]))
        return self._read_command(frame)

    def _read_command(self, frame: memoryview) -> Answer | None:
        """An answer in the other encoding, or in a form that few write."""
        try:
            command = decode(frame)
        except FrameError as error:
            raise self._broken(ConnectionError(str(error))) from error
        if not command.is_response:
            return None
        return Answer(command.opaque, command.code, command.remark or "", command.ext or {},
                      command.body)


def _secured(context: ssl.SSLContext, plain: socket.socket, host: str) -> socket.socket:
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def prepare(config: ClientConfig) -> Callable[[Command], None]:
    """What every request of this client carries: language, stream flag, signature."""
    def change(command: Command) -> None:
        command.language = config.language
        if config.stream:
            command.ext = {**(command.ext or {}), "ReqT": "0"}
        if config.account is not None:
            sign(command, config.account)
    return change


_kept: Idle[Link] = Idle(Link.close)


def open_link(address: str, config: ClientConfig) -> Link:
    """A link that lay idle, or a new one; raises ConnectError."""
    return _kept.take((address, config)) or Link(address, config)


def keep_link(link: Link, config: ClientConfig) -> None:
    """Give back a link on which nothing is under way."""
    _kept.give((link.address, config), link)


def call(link: Link, command: Command, config: ClientConfig, timeout: float) -> Answer:
    """One request and its answer, on a link with nothing else under way. Raises as these do."""
    command.opaque = link.next_opaque()
    prepare(config)(command)
    link.write(encode(command), timeout)
    while True:
        found = link.answer(timeout)
        if found.opaque == command.opaque:
            return found
