"""
Handshakes of a name server's connections: their bytes, their steps, the thread that takes them.

OpenSSL works in memory: what came from the socket goes in, what it has to say goes out, and between
the two a step is taken, by the thread, which holds no lock of the interpreter meanwhile. The thread
never sees a socket, so a connection may end while it has a step of it.
"""
from __future__ import annotations

import os
import ssl
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any, cast

BYTES_MAX = 256 << 10                  # of a peer in a handshake, its certificates among them


class Shake:
    """One handshake, as a server."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._made = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._taken = 0
        self._output = b""
        self.done = False
        self.error: Exception | None = None

    def take(self, data: bytes) -> None:
        """These have come; ConnectionError when a peer sends without end."""
        self._taken += len(data)
        if self._taken > BYTES_MAX:
            raise ConnectionError(f"more than {BYTES_MAX} bytes")
        self._incoming.write(data)

    def step(self) -> None:
        """As far as it gets with what has come: it is `done` then, has an `error`, or neither."""
        try:
            self._made.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass                       # more has to come
        except Exception as error:     # the thread's boundary: whose it is ends with it
            self.error = error

    def output(self) -> bytes:
        """What is to be sent next."""
        self._output += self._outgoing.read()
        return self._output

    def sent(self, count: int) -> None:
        self._output = self._output[count:]

    def shaken(self) -> ssl.SSLContext:
        """What asyncio goes on with; it sends what is left of the output, too."""
        left, self._output = self.output(), b""
        return cast(ssl.SSLContext, _Shaken(self._made, self._incoming, self._outgoing, left))


class _Shaken:
    """
    A connection after its handshake: for asyncio both the context that makes its TLS and that TLS.
    Bytes go through memory of asyncio's and then through its own.
    """

    def __init__(self, made: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO,
                 left: bytes) -> None:
        self._made, self._left = made, left
        self._ours = incoming, outgoing
        self._theirs = incoming, outgoing

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **_: Any) -> _Shaken:
        """As SSLContext.wrap_bio, once."""
        self._theirs = incoming, outgoing
        outgoing.write(self._left)
        self._left = b""
        return self

    def do_handshake(self) -> None:
        """It is done."""
        self._bring()

    def read(self, *arguments: Any) -> Any:
        """As SSLObject.read; raises EmptyRecords, too."""
        self._bring()
        try:
            return self._made.read(*arguments)
        finally:
            self._fetch()

    def write(self, data: Any) -> int:
        try:
            return self._made.write(data)
        finally:
            self._fetch()

    def unwrap(self) -> None:
        self._bring()
        try:
            self._made.unwrap()
        finally:
            self._fetch()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)           # what it says of its peer, of its cipher

    def _bring(self) -> None:
        theirs, ours = self._theirs[0], self._ours[0]
        if theirs.pending:
            ours.write(theirs.read())
        if theirs.eof:
            ours.write_eof()

    def _fetch(self) -> None:
        if self._ours[1].pending:
            self._theirs[1].write(self._ours[1].read())


class Steps:
    """The thread; `bell` is readable while steps are back."""

    def __init__(self) -> None:
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._back: deque[Any] = deque()
        self._thread = threading.Thread(target=self._run, name="handshakes", daemon=True)
        self._thread.start()
        self.count = 0                 # that are with it, or back and not taken

    def ask(self, shake: Shake, whose: object) -> None:
        self.count += 1
        self._asked.put((shake, whose))

    def take(self) -> object | None:
        """Whose step is back; None: nobody's, and the bell is silent until one is."""
        if not self._back:
            try:
                os.eventfd_read(self.bell)
            except BlockingIOError:
                return None
            if not self._back:
                return None
        self.count -= 1
        whose: object = self._back.popleft()
        return whose

    def close(self) -> None:
        """Waits for the step that it takes."""
        self._asked.put(None)
        self._thread.join()
        os.close(self.bell)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            shake, whose = asked
            shake.step()
            self._back.append(whose)
            os.eventfd_write(self.bell, 1)
