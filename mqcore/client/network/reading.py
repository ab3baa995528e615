"""Whose turn it is to read a connection: the loop's, or that of a thread that waits for an answer.

A thread that sends one message after the other, with no sender beside it, reads its answers itself:
no second thread has to wake up for it. The loop lends the turn when it has seen some such sends,
and takes it back when something else uses the connection, or the turn was not used for a moment.

- Only the holder of the turn touches the FrameReader: the loop in LOOP, one thread in THREAD.
- The turn changes under the connection's gate, and so does what a thread does to `waiting`.
- A thread takes out the one answer that it waits for, when it says that a message is stored.
  Other frames stay where they are, and the turn goes back: they are the loop's work.
- A waiter reads its answer while the turn is FREE, or the loop takes the turn back.
- A signal may raise in a thread at any point. Its caller tells the loop (`left`) that the thread
  is gone, and the loop takes the turn that it may still have.
"""
from __future__ import annotations

import asyncio
import enum
import threading
import time
from collections.abc import Callable

from mqcore.client.native.answers import FrameReader, Waiter, end_of_socket, readable

LEND_AFTER = 8              # sends in a row without others
LOOK_S = 0.02               # a turn that was not used for so long, or twice that, goes back
READ_S_MAX = 1.0            # a thread does not wait for longer: the loop's owner may warn, then

# code, queue id, queue offset, offset message id, region, transaction id, whether it is traced
Stored = tuple[int, int, int, str, str, str, bool]


class Turn(enum.Enum):
    """The reader of a connection."""

    LOOP = 0
    FREE = 1                # lent: the next thread that waits
    THREAD = 2              # one is at it
    RETURNING = 3           # the loop was told to take it back


class ReadingTurn:
    """The turn to read one connection."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, gate: threading.Lock, waiting: dict[int, Waiter],
        frames: FrameReader, on_turn: Callable[[], None],
    ) -> None:
        """
        gate     held by the writer to the socket; it guards the turn as well
        waiting  opaque -> the waiter for its answer
        on_turn  called in the loop when the turn is back: frames may lie in `frames`
        """
        self._loop = loop
        self._gate = gate
        self._waiting = waiting
        self._frames = frames
        self._on_turn = on_turn
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._turn = Turn.LOOP
        self._alone_count = 0
        self._reader = 0                # in THREAD: the opaque of the answer that it waits for
        self._is_used = False
        self._is_looking = False        # a look is planned
        self.heard_at: float = 0.0      # when a thread read bytes last, of the loop's clock

    def open(self, transport: asyncio.Transport, descriptor: int) -> None:
        """Threads may read this socket; without this they never get the turn."""
        self._transport = transport
        self._descriptor = descriptor

    def close(self) -> None:
        """The socket is closed after this; with the gate. A thread that reads it wakes up."""
        if self._turn is Turn.THREAD:
            end_of_socket(self._descriptor)
        self._turn = Turn.LOOP
        self._transport = None
        self._descriptor = -1

    def note_alone(self) -> None:
        """A thread sends and will wait for the answer; with the gate, when it is in `waiting`."""
        self._alone_count = self._alone_count + 1 if len(self._waiting) == 1 else 0

    def note_other(self) -> None:
        """Something else waits for an answer, which the loop has to read; in the loop."""
        self._alone_count = 0
        if self._turn is Turn.FREE:
            self.take_back()

    def maybe_lend(self) -> None:
        """Lend the turn to threads if only one has sent for a while; in the loop."""
        if self._alone_count < LEND_AFTER or self._waiting:
            return
        with self._gate:
            transport = self._transport
            if (transport is None or transport.is_closing() or self._waiting
                    or self._turn is not Turn.LOOP):
                return
            transport.pause_reading()
            self._turn = Turn.FREE
            self._is_used = True
        if not self._is_looking:
            self._plan_look()

    def take_back(self) -> None:
        """Read again, unless a thread is at it: that one returns the turn; in the loop."""
        with self._gate:
            if self._turn in (Turn.LOOP, Turn.THREAD):
                return
            self._turn = Turn.LOOP
            self._alone_count = 0
        if self._transport is not None:
            self._transport.resume_reading()
            self._on_turn()

    def left(self, opaque: int) -> None:
        """The thread that may have read for this answer does so no more; in the loop."""
        with self._gate:
            if self._turn is Turn.THREAD and self._reader == opaque:
                self._turn = Turn.RETURNING
            if self._turn is not Turn.RETURNING:
                return
        self.take_back()

    def read(self, opaque: int, deadline: float) -> Stored | None:
        """
        The answer to the caller's request, if the turn is free and the answer says `stored`.

        deadline  of the loop's clock. None: the loop tells the waiter, `answered` or `failed`
        """
        with self._gate:
            if self._turn is not Turn.FREE or opaque not in self._waiting:
                return None             # the loop may have read it before it lent the turn
            self._turn = Turn.THREAD
            self._reader = opaque
            self._is_used = True
            descriptor = self._descriptor
        found = None
        try:
            found = self._read(descriptor, opaque, min(deadline, time.monotonic() + READ_S_MAX))
        finally:
            with self._gate:
                if self._turn is not Turn.THREAD:
                    pass                    # the connection ended
                elif found is None or self._waiting or self._frames.has_bytes:
                    self._turn = Turn.RETURNING
                    self._loop.call_soon_threadsafe(self.take_back)
                else:
                    self._turn = Turn.FREE
        return found

    # -- inside -----------------------------------------------------------------------------------

    def _read(self, descriptor: int, opaque: int, deadline: float) -> Stored | None:
        while (left := deadline - time.monotonic()) > 0:
            if not readable(descriptor, left):
                continue
            with self._gate:
                if self._turn is not Turn.THREAD:
                    return None             # the number may be another socket's by now
                if not self._frames.receive(descriptor):
                    return None
                self.heard_at = time.monotonic()
                if not self._frames.is_whole:
                    continue
                return self._frames.take(opaque)
        return None

    def _plan_look(self) -> None:
        self._is_looking = True
        self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        with self._gate:
            if self._turn is Turn.LOOP:
                return
            is_used = self._is_used or self._turn is Turn.THREAD
            self._is_used = False
        if is_used:
            self._plan_look()
        else:
            self.take_back()
