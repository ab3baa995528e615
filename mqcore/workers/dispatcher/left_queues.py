"""
The dispatcher's pass over queues that a start believed by their folders (as_left.pxd, Y4 and Y5).

It looks at the files of all of them, beside the dispatch. What somebody has changed is said, and
the supervisor starts the broker again.
"""
from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from mqcore.shm.segment import Segment
from mqcore.store.queue.as_left import LeftQueues
from mqcore.wire.printable import printable

LOOKERS = 16                    # threads that wait for the disk
SLICE_QUEUES = 4096             # looked at between two looks at the stop

log = logging.getLogger("mqcore.dispatcher")


class LeftQueuesThread:
    """folder: of the consume queues; file_entries: entries of one of their files."""

    def __init__(self, segment: Segment, folder: bytes, file_entries: int) -> None:
        self._queues = LeftQueues(segment, folder, file_entries)
        self._stopping = threading.Event()
        self._changed: list[str] = []
        self._thread = threading.Thread(target=self._look_at_all, name="look")

    @property
    def left(self) -> int:
        """How many queues it has not looked at, or found changed."""
        return self._queues.left

    def start(self) -> None:
        """Nothing to do for a start that looked at all files itself."""
        if self.left:
            self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has looked at everything."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopping.set()
        while not self.wait(1.0):
            pass

    def _look_at_all(self) -> None:
        with ThreadPoolExecutor(LOOKERS) as lookers:
            for begin in range(0, self._queues.count, SLICE_QUEUES):
                if self._stopping.is_set():
                    return
                end = begin + SLICE_QUEUES
                for done in [lookers.submit(self._queues.look, begin + at, end, LOOKERS)
                             for at in range(LOOKERS)]:
                    self._say(done.result())

    def _say(self, folders: list[str]) -> None:
        for folder in folders:
            log.error("%s: files were changed while no broker ran: this broker starts again, and "
                      "compares them with the commit log", printable(folder))
        if folders:
            self._changed += folders
            self._queues.report(len(self._changed))
