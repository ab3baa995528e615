"""The client's end of a connection without any I/O: bytes and commands in, bytes and answers out.

It splits frames, matches answers to requests by opaque, and knows what is late. The asyncio shell
(`connection.py`) moves the bytes; another shell could do the same with threads. Time is an argument
(seconds of a monotonic clock), so tests turn it by hand.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterator

from mqcore.client.errors import QueueFull
from mqcore.wire.codes import FRAME_LENGTH_MAX, LENGTH_WORD_SIZE
from mqcore.wire.command import Command, FrameError, decode, encode

PENDING_COUNT_MAX = 65_535      # as the Java client's permits (remoting.md 2.5)


class ClientProtocol:
    """One connection's requests that wait for answers, and the bytes that are not yet a frame."""

    def __init__(
        self, *, pending_count_max: int = PENDING_COUNT_MAX,
        frame_length_max: int = FRAME_LENGTH_MAX,
    ) -> None:
        self._pending: dict[int, float] = {}            # opaque -> deadline
        self._deadlines: list[tuple[float, int]] = []     # heap; answered ones are skipped lazily
        self._pending_count_max = pending_count_max
        self._frame_length_max = frame_length_max
        self._input = bytearray()

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def start(self, request: Command, timeout: float, now: float) -> bytes:
        """The bytes of a request whose answer is awaited until `now + timeout`.

        Raises QueueFull at the limit, ValueError when its opaque is in use,
        FrameError when it cannot be encoded.
        """
        if len(self._pending) >= self._pending_count_max:
            raise QueueFull(
                f"{len(self._pending)} requests wait for answers: the limit"
            )
        if request.opaque in self._pending:
            raise ValueError(f"opaque {request.opaque}: a request with it waits for its answer")
        frame = encode(request)
        self._pending[request.opaque] = now + timeout
        heapq.heappush(self._deadlines, (now + timeout, request.opaque))
        return frame

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Command]:
        """Take bytes from the peer; yields whole commands. Raises FrameError for nonsense."""
        self._input += data
        start = 0
        try:
            while True:
                end = self._frame_end(start)
                if end is None:
                    return
                frame = bytes(self._input[start + LENGTH_WORD_SIZE:end])
                start = end
                yield decode(frame)
        finally:
            del self._input[:start]

    def _frame_end(self, start: int) -> int | None:
        if len(self._input) - start < LENGTH_WORD_SIZE:
            return None
        length = int.from_bytes(self._input[start:start + LENGTH_WORD_SIZE], "big", signed=True)
        if not 0 <= length <= self._frame_length_max:
            raise FrameError(f"frame length {length}: expected at most {self._frame_length_max}")
        end = start + LENGTH_WORD_SIZE + length
        return end if end <= len(self._input) else None

    def match(self, answer: Command) -> bool:
        """Whether a request waits for this answer; it then no longer waits."""
        return self._pending.pop(answer.opaque, None) is not None

    def cancel(self, opaque: int) -> None:
        """Forget a request whose caller gave up; a later answer matches nothing."""
        self._pending.pop(opaque, None)

    def expired(self, now: float) -> list[int]:
        """The opaques whose time is over; they no longer wait."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, opaque = heapq.heappop(self._deadlines)
            if self._pending.get(opaque) == deadline:
                del self._pending[opaque]
                late.append(opaque)
        return late

    def next_deadline(self) -> float | None:
        """When `expired` has to be asked next; None when nothing waits."""
        while self._deadlines and self._pending.get(self._deadlines[0][1]) != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
