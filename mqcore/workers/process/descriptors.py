"""
How many files and sockets the processes may have open at a time (RLIMIT_NOFILE), and for what.

Every process inherits the doorbells and all listening sockets. What is left of the limit is shared
out: connections and files of queues, half each where it does not hold both in full.
"""
from __future__ import annotations

import resource
from dataclasses import dataclass

from mqcore.broker.settings.model import Settings
from mqcore.participants import SLOT_COUNT

SPARE = 40                       # log, lock, epoll, pipes, segments, files that are read or written
ROOM_MIN = 96                    # for connections and queue files; with less a broker is no use
QUEUE_FILES_MAX = 4096
EXTENSION_FILES_MAX = 1024
LOOKED_AT_MAX = 1024
NAMESRV_RESERVED = 128           # of a name server, beside a broker or alone
ENDLESS = 1 << 20                # where there is no limit


class TooFewDescriptors(Exception):
    """The limit is too low; the text is one sentence."""


@dataclass(frozen=True)
class Descriptors:
    """The share of one process."""

    limit: int
    connections: int             # of a serving process
    queue_files: int             # consume queue files that it keeps open
    extension_files: int


def raise_limit() -> int:
    """Take as many descriptors as the hard limit allows; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENDLESS if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def share(settings: Settings, serving_count: int, limit: int) -> Descriptors:
    """Who may have how many of `limit`. Raises TooFewDescriptors."""
    fixed = SLOT_COUNT + SPARE + 2 * serving_count + 1
    room = limit - fixed
    if room < ROOM_MIN:
        raise TooFewDescriptors(
            f"RLIMIT_NOFILE allows {limit} open files and sockets in a process (ulimit -Hn, "
            f"LimitNOFILE): expected at least {fixed + ROOM_MIN}, better 65536")
    wanted = settings.processes.connection_count_max
    extensions = EXTENSION_FILES_MAX if settings.store.queue_extension_enable else 0
    queue_files = QUEUE_FILES_MAX
    if wanted + queue_files + extensions > room:
        queue_files = min(queue_files, max(room // 2, room - wanted - extensions))
        extensions = min(extensions, queue_files // 4)
        queue_files -= extensions
    return Descriptors(limit, min(wanted, room - queue_files - extensions), queue_files,
                       extensions)


def looked_at(settings: Settings, serving_count: int) -> int:
    """Queue files that a process keeps open which only looks something up now and then."""
    return min(share(settings, serving_count, raise_limit()).queue_files, LOOKED_AT_MAX)


def namesrv_connections(wanted: int) -> int:
    """How many connections a name server may take."""
    return min(wanted, max(raise_limit() - NAMESRV_RESERVED, 16))
