"""The messages of one held queue between pull and commit (client.md 4.10). No I/O.

Invariant P1: the offset to commit is the smallest one not yet done, so a crash repeats messages and
never loses one.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable

from mqcore.client.message import ReceivedMessage


class ProcessQueue:
    """Which offsets are being worked on, and how far the queue is done."""

    def __init__(self, start_offset: int) -> None:
        self.next_offset = start_offset         # the next pull begins here
        self.commit_offset = start_offset       # everything below is done (P1)
        self._start_offset = start_offset
        self.dropped = False                    # given up: its work is finished and not committed
        self._sizes: dict[int, int] = {}        # offset -> body bytes, of messages not yet done
        self._order: list[int] = []             # heap of those offsets; done ones leave lazily
        self._end = start_offset                # one above the largest offset ever put
        self.byte_count = 0

    @property
    def message_count(self) -> int:
        return len(self._sizes)

    def put(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Take messages of a pull; `next_offset` is where the next pull begins."""
        for message in messages:
            if message.queue_offset not in self._sizes:
                self._sizes[message.queue_offset] = len(message.body)
                heapq.heappush(self._order, message.queue_offset)
                self.byte_count += len(message.body)
        self.next_offset = next_offset
        self._end = max(self._end, next_offset)
        self._advance()

    def done(self, messages: Iterable[ReceivedMessage]) -> None:
        """Mark messages as finished; `commit_offset` follows (P1)."""
        for message in messages:
            size = self._sizes.pop(message.queue_offset, None)
            if size is not None:
                self.byte_count -= size
        self._advance()

    def _advance(self) -> None:
        while self._order and self._order[0] not in self._sizes:
            heapq.heappop(self._order)
        reached = self._order[0] if self._order else self._end
        self.commit_offset = max(self.commit_offset, reached)

    @property
    def has_progress(self) -> bool:
        """Whether there is anything to commit since the queue was taken."""
        return self.commit_offset > self._start_offset

    @property
    def span(self) -> int:
        """The distance between the oldest and the newest unfinished offset."""
        return self._end - self._order[0] if self._order else 0
