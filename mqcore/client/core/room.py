"""How much of a producer is on its way at a time: bounded by count and bytes (client.md 2.15)."""
from __future__ import annotations

import threading
import time
from typing import Protocol


class Holder(Protocol):
    """The owner of a place. It is told in one step with the count: no signal can come between.

    has_room   None: it keeps no account of that, and gives what it took once
    """

    has_room: bool | None


class Room:
    """Takes messages in until it is full; safe for several threads.

    A message larger than the limit of bytes goes when nothing else is on its way.
    """

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread_count = 0          # threads that wait for room
        self.count: int = 0
        self.bytes: int = 0

    def try_take(self, size: int, count: int = 1, holder: Holder | None = None) -> bool:
        """Whether `count` messages of `size` bytes together fit in now; they are in then."""
        with self._lock:
            return self._take(size, count, holder)

    def take(
        self, size: int, timeout: float, count: int = 1, holder: Holder | None = None
    ) -> bool:
        """Wait up to `timeout` seconds until they fit; whether they do."""
        with self._changed:
            if self._take(size, count, holder):
                return True
            deadline = time.monotonic() + timeout
            self._thread_count += 1
            try:
                while not self._take(size, count, holder):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(left)
                return True
            finally:
                self._thread_count -= 1

    def give(self, size: int, count: int = 1, holder: Holder | None = None) -> int:
        """They have their outcome; how many are still on their way. A holder gives once."""
        with self._lock:
            if holder is not None and holder.has_room is not None:
                if not holder.has_room:
                    return self.count
                holder.has_room = False
            self.count -= count
            self.bytes -= size
            if self._thread_count and self._is_roomy():
                self._changed.notify_all()
            return self.count

    def _is_roomy(self) -> bool:
        """Whether to wake a waiter: not for each place, that would be one turn of threads each."""
        return (4 * self.count <= 3 * self._count_max and 4 * self.bytes <= 3 * self._bytes_max)

    def _take(self, size: int, count: int, holder: Holder | None) -> bool:
        if self.count and (self.count + count > self._count_max
                           or self.bytes + size > self._bytes_max):
            return False
        self.count += count
        self.bytes += size
        if holder is not None:
            holder.has_room = True
        return True
