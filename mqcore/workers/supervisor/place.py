"""
The place of a broker's store: that it is this broker's, and stays so while it runs.

The supervisor looks once a second, when it wakes anyway.
"""
from __future__ import annotations

import logging
import os
from pathlib import Path

from mqcore.broker.settings.model import Settings
from mqcore.shm import memory
from mqcore.shm.segment import Segment
from mqcore.store.ownership import BrokerLock
from mqcore.workers.process import loop

log = logging.getLogger("mqcore.supervisor")


class Place:
    """
    A broker's lock on its store, and what follows when the store is elsewhere.

    elsewhere: why the store is no longer this broker's, "": it is. Raises StoreInUseError, OSError.
    """

    def __init__(self, settings: Settings) -> None:
        self._root = settings.store_root
        self._lock = BrokerLock(self._root, settings.log_folders)
        self.elsewhere = ""

    def look(self, segment: Segment) -> None:
        """Refuse messages as long as the path of the store leads to another folder."""
        before, again = self.elsewhere, self._lock.made_again
        self.elsewhere = self._lock.look()
        if self._lock.made_again != again:
            log.warning("%s was removed, and is made again", self._root / "lock")
        if self.elsewhere == before:
            return
        segment.set_elsewhere(bool(self.elsewhere))
        if self.elsewhere:
            log.error("no messages are taken: %s", self.elsewhere)
        else:
            log.warning("messages are taken again: %s leads to the store again", self._root)

    def is_ours(self) -> bool:
        """As of this moment."""
        return not self._lock.look()

    def release(self) -> None:
        self._lock.release()


def live_run(prefix: str) -> int:
    """
    The supervisor of a live run whose shared memory has this prefix, 0: none. The prefix is made of
    a path, which led to another folder when that run began.
    """
    for name in memory.names(prefix):
        pid = loop.supervisor_of(name)
        if pid != os.getpid() and _supervises(pid):
            return pid
    return 0


def _supervises(pid: int) -> bool:
    """Whether a process is the supervisor of a broker, and paths mean the same to it as to us."""
    try:
        comm = Path(f"/proc/{pid}/comm").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return (comm.startswith(memory.SUPERVISOR_COMM) and loop.alive(pid)
            and _mounts(pid) in ("", _mounts("self")))


def _mounts(process: int | str) -> str:
    """The mount namespace of a process; "": it is not ours to look at."""
    try:
        return os.readlink(f"/proc/{process}/ns/mnt")
    except OSError:
        return ""
