"""One queue that a member holds, from its first pull to the moment when it is given up."""
from __future__ import annotations

import asyncio

from mqcore.client.core.consume_stats import Counts
from mqcore.client.core.process_queue import OrderlyQueue, ProcessQueue
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage


class AssignedQueue:
    """
    queue      as brokers know it, `shown` as the application does
    messages   those between pull and commit
    counts     of its topic
    dropped    given up: what is still worked on is not committed
    committed  the offset that the store has, as far as this member knows; None: it does not know.
               So it is at first: a broker answers 0 for a young queue of which it stores nothing
    is_marked  the role says what may be committed: `marked`, None while it has said nothing
    going      not set: it is not pulled for now
    """

    __slots__ = ("_room", "committed", "consuming", "counts", "dropped", "going", "is_marked",
                 "last_consume", "last_lock", "last_pull", "marked", "messages", "pulls", "queue",
                 "shown", "start_offset")

    def __init__(self, queue: MessageQueue, shown: MessageQueue, start: int, now: float,
                 counts: Counts, *, orderly: bool = False, locked: bool = False,
                 is_marked: bool = False) -> None:
        self.queue: MessageQueue = queue
        self.shown: MessageQueue = shown
        self.counts: Counts = counts
        self.messages: ProcessQueue[ReceivedMessage] = (
            OrderlyQueue(start) if orderly else ProcessQueue(start))
        self.dropped: bool = False
        self.consuming: bool = False          # orderly: a task works on it
        self.start_offset: int = start
        self.committed: int | None = None
        self.is_marked: bool = is_marked
        self.marked: int | None = None
        self.going: asyncio.Event = asyncio.Event()
        self.going.set()
        self.last_pull: float = now            # seconds of a monotonic clock
        self.last_consume: float = 0.0
        self.last_lock: float = now if locked else 0.0
        self.pulls: asyncio.Task[None] | None = None
        self._room: asyncio.Event | None = None

    @property
    def commit_offset(self) -> int | None:
        """The offset to commit; None: there is none yet."""
        return self.marked if self.is_marked else self.messages.commit_offset

    def moved(self, offset: int, now: float) -> AssignedQueue:
        """The same queue, to be pulled from another offset on; what was pulled is forgotten."""
        new = AssignedQueue(self.queue, self.shown, offset, now, self.counts, is_marked=True)
        new.start_offset, new.committed = self.start_offset, self.committed
        new.marked, new.going = self.commit_offset, self.going
        return new

    async def room(self, timeout: float) -> None:
        """Wait until something is done, for `timeout` seconds at most."""
        self._room = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._room.wait()
        except TimeoutError:
            return                      # looked at again in any case
        finally:
            self._room = None

    def done(self, messages: list[ReceivedMessage]) -> None:
        """Messages are finished; a pull that waits for room may look again."""
        self.messages.done(messages)
        if self._room is not None:
            self._room.set()

    def without(
        self, messages: list[ReceivedMessage], wanted: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """The wanted ones of new messages; the others are finished."""
        if len(wanted) < len(messages):
            keep = set(map(id, wanted))
            self.done([message for message in messages if id(message) not in keep])
        return wanted

    def drop(self) -> None:
        """No more pulls, no more commits."""
        self.dropped = True
        if self.pulls is not None and self.pulls is not asyncio.current_task():
            self.pulls.cancel()
