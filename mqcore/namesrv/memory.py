"""
What all connections of a name server hold together: unfinished requests and unread answers.

The sum has a limit. When it is reached, the connection goes that has held most for the longest
without progress; who holds little is safe.
"""
from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Protocol

SAFE_BYTES = 16_384            # nobody is closed for holding no more than this
TRIM_BYTES = 4 << 20
malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _pad: 0)        # glibc alone has it


class Holder(Protocol):
    """A connection."""

    held_bytes: int            # as it said last
    held_since_ms: int         # when what it holds began to come, or to wait

    def measure(self) -> int: ...
    def close(self, reason: str) -> None: ...


class Memory:
    """The sum over all connections; each says when what it holds has changed."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0

    def changed(self, holder: Holder, others: Iterable[Holder], now_ms: int) -> None:
        """Take over what a connection holds now, and close whom the limit asks for."""
        before = holder.held_bytes
        self._take_over(holder)
        if before - holder.held_bytes >= TRIM_BYTES:
            malloc_trim(0)                 # else the C library keeps what was freed
        if self.bytes <= self._bytes_max:
            return
        everybody = [*others]
        for one in everybody:
            self._take_over(one)           # answers leave without a word
        everybody.sort(key=lambda one: one.held_bytes * (1 + now_ms - one.held_since_ms))
        while self.bytes > self._bytes_max and everybody:
            worst = everybody.pop()
            if worst.held_bytes <= SAFE_BYTES:
                continue
            held = worst.held_bytes
            worst.close(f"it held {held} bytes without progress when namesrv."
                        f"connection_memory_bytes ({self._bytes_max}) were spent")
            self._take_over(worst)
        malloc_trim(0)

    def _take_over(self, holder: Holder) -> None:
        now_held = holder.measure()
        self.bytes += now_held - holder.held_bytes
        holder.held_bytes = now_held
