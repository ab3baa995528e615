"""
A connection for many large pulls: what a reader reads through.

Its own beside the pool's, so that calls and heartbeats do not wait behind megabytes of messages.
"""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from mqcore.client.errors import ConnectError, RequestTimeout, RocketMQError
from mqcore.wire.codes import (
    FLAG_RESPONSE,
    FRAME_LENGTH_MAX,
    HEADER_WORD_SIZE,
    LENGTH_WORD_SIZE,
)
from mqcore.wire.command import Command, FrameError, decode, encode

FLAG_REPLAYS: Final = 1 << 30       # of a pull's sysFlag: larger answers, of ours (broker.md 6.2)

_BUFFER_BYTES = 1 << 20
_ROOM_MIN = 256 << 10               # less than that at its end, and what is left moves to its front
CORK_MAX = 16                       # requests in one write
_OPAQUE_END = 1 << 31
_OFFSET_MARK = "@offset@"
_OPAQUE_MARK = _OPAQUE_END - 1
_WORDS = Struct(">ii")

log: Final = logging.getLogger("mqcore.client")


class PullAnswer(NamedTuple):
    """A broker's answer; numbers that are missing in it are -1."""

    code: int
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int
    body: bytes


class _Fields(msgspec.Struct):
    next_offset: int = msgspec.field(name="nextBeginOffset", default=-1)
    min_offset: int = msgspec.field(name="minOffset", default=-1)
    max_offset: int = msgspec.field(name="maxOffset", default=-1)
    broker_id: int = msgspec.field(name="suggestWhichBrokerId", default=0)


class _Head(msgspec.Struct):
    code: int
    opaque: int
    flag: int
    remark: str | None = None
    fields: _Fields | None = msgspec.field(name="extFields", default=None)


_decode_head = msgspec.json.Decoder(_Head, strict=False).decode      # numbers come as text
_NOTHING = _Fields()

Answered = Callable[[PullAnswer], None]
Failed = Callable[[RocketMQError], None]


class PullFrame:
    """A pull's frame, all but its offset and opaque made once."""

    def __init__(self, make: Callable[[str], Command], prepare: Callable[[Command], None], *,
                 signed: bool) -> None:
        """
        make     the request for an offset
        prepare  what the client does to every request
        signed   whether that depends on the offset: nothing can be made beforehand
        """
        self._make = make
        self._prepare = prepare
        self._parts: list[bytes] | None = None
        if not signed:
            command = make(_OFFSET_MARK)
            command.opaque = _OPAQUE_MARK
            prepare(command)
            header = encode(command)[LENGTH_WORD_SIZE + HEADER_WORD_SIZE:]
            before, after = header.split(_OFFSET_MARK.encode())
            between, end = after.split(b'"opaque":%d' % _OPAQUE_MARK)
            self._parts = [before, between, end]

    def frame(self, offset: int, opaque: int) -> bytes:
        """The whole frame."""
        if self._parts is None:
            command = self._make(str(offset))
            command.opaque = opaque
            self._prepare(command)
            return encode(command)
        before, between, end = self._parts
        header = b'%b%d%b"opaque":%d%b' % (before, offset, between, opaque, end)
        return _WORDS.pack(len(header) + HEADER_WORD_SIZE, len(header)) + header


class PullLink(asyncio.BufferedProtocol):
    """Many pulls at a time; each is answered, or failed, once."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[float, Answered, Failed]] = {}
        self._opaque = 0
        self._buffer = bytearray(_BUFFER_BYTES)
        self._output: list[bytes] = []
        self._reading = False                   # frames are being read: requests wait for the end
        self._loop = asyncio.get_running_loop()
        self._begin = self._end = 0             # what of the buffer was received and not yet read

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def pull(self, request: PullFrame, offset: int, timeout: float, answered: Answered,
             failed: Failed) -> None:
        """Ask; `answered` or `failed` is called later, from the loop."""
        assert self._transport is not None
        self._opaque = (self._opaque + 1) % _OPAQUE_MARK
        self._waiting[self._opaque] = time.monotonic() + timeout, answered, failed
        self._output.append(request.frame(offset, self._opaque))
        if len(self._output) >= CORK_MAX:
            self._flush()
        elif not self._reading and len(self._output) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write the requests of one turn of the loop at once: each write is a system call."""
        if self._output and self._transport is not None:
            self._transport.write(b"".join(self._output))
        self._output.clear()

    def expire(self, now: float) -> None:
        """Give the connection up when an answer is late: those behind it would be, too."""
        if any(deadline <= now for deadline, _, _ in self._waiting.values()):
            self.close(RequestTimeout(f"no answer from {self.address} in time",
                                      broker=self.address))

    def close(self, error: RocketMQError | None = None) -> None:
        """End the connection; waiting pulls fail with `error`, without one they are not told."""
        waiting, self._waiting = self._waiting, {}
        if self._transport is not None:
            self._transport.abort()
        if error is not None:
            for _, _, failed in waiting.values():
                failed(error)

    # -- what the transport calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.close(ConnectError(f"connection to {self.address} closed: {error!r}",
                                broker=self.address))

    def get_buffer(self, sizehint: int) -> memoryview:
        if len(self._buffer) - self._end < _ROOM_MIN:
            left = self._buffer[self._begin:self._end]
            if len(self._buffer) - len(left) < _ROOM_MIN:
                grown = bytearray(2 * len(self._buffer))    # one frame longer than the buffer
                grown[:len(left)] = left
                self._buffer = grown
            else:
                self._buffer[:len(left)] = left
            self._begin, self._end = 0, len(left)
        return memoryview(self._buffer)[self._end:]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._reading = True
        try:
            self._read_frames()
        except FrameError as error:
            log.warning("connection to %s closed: %s", self.address, error)
            self.close(ConnectError(f"{self.address} sent no frame: {error}", broker=self.address))
        finally:
            self._reading = False
        self._flush()
        if self._begin == self._end:
            self._begin = self._end = 0

    def _read_frames(self) -> None:
        """Answer whole frames. Raises FrameError for a length that none may have."""
        while self._end - self._begin >= LENGTH_WORD_SIZE + HEADER_WORD_SIZE:
            length, word = _WORDS.unpack_from(self._buffer, self._begin)
            if not HEADER_WORD_SIZE <= length <= FRAME_LENGTH_MAX:
                raise FrameError(f"frame length {length}: expected 4 to {FRAME_LENGTH_MAX}")
            end = self._begin + LENGTH_WORD_SIZE + length
            if end > self._end:
                return
            start = self._begin + LENGTH_WORD_SIZE
            self._begin = end
            with memoryview(self._buffer) as view:
                self._take(view[start:end], word)

    def _take(self, frame: memoryview, word: int) -> None:
        header_end = HEADER_WORD_SIZE + word
        if not 0 <= word <= len(frame) - HEADER_WORD_SIZE:      # another codec, or nonsense
            self._take_command(decode(frame))
            return
        try:
            head = _decode_head(frame[HEADER_WORD_SIZE:header_end])
            fields = head.fields or _NOTHING
            answer = PullAnswer(
                head.code, head.remark or "", fields.next_offset, fields.min_offset,
                fields.max_offset, fields.broker_id, bytes(frame[header_end:]))
        except msgspec.DecodeError:
            self._take_command(decode(frame))                   # a form that few write
            return
        self._give(head.opaque, head.flag, answer)

    def _take_command(self, command: Command) -> None:
        ext = command.ext or {}
        try:
            answer = PullAnswer(
                command.code, command.remark or "", int(ext.get("nextBeginOffset") or -1),
                int(ext.get("minOffset") or -1), int(ext.get("maxOffset") or -1),
                int(ext.get("suggestWhichBrokerId") or 0), command.body)
        except ValueError as error:
            raise FrameError(f"a pull's answer: {error}") from error
        self._give(command.opaque, command.flag, answer)

    def _give(self, opaque: int, flag: int, answer: PullAnswer) -> None:
        waiting = self._waiting.pop(opaque, None) if flag & FLAG_RESPONSE else None
        if waiting is None:
            log.debug("%s sent an answer without a waiter: code %d", self.address, answer.code)
            return
        waiting[1](answer)
