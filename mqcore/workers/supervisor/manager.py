"""
The words of a broker to its service manager, as systemd's sd_notify(3) takes them.

It hears when clients can connect, when a stop begins, and, if it has a watchdog, that all processes
turn. Without NOTIFY_SOCKET in the environment nothing is said.
"""
from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

from mqcore.participants import SUPERVISOR
from mqcore.shm.segment import Segment

log = logging.getLogger("mqcore.supervisor")


class ServiceManager:
    """
    beats: whether supervisor and name server show that they turn; others look at it, or the
    watchdog does.
    """

    def __init__(self, environment: Mapping[str, str], *, beats: bool) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        asked = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        # twice as often as it wants to hear, as systemd advises
        self._pause_s = int(watchdog_us) / 2e6 if (
            self._address and asked and watchdog_us.isdecimal()) else 0.0
        self._next = 0.0
        self._stopping = False
        self.beats = beats or bool(self._pause_s)

    def ready(self) -> None:
        """Clients can connect."""
        self._say("READY=1")

    def turn(self, segment: Segment, *, stops: bool, ends: bool) -> None:
        """
        A turn of the supervisor, at least one a second. stops: for good; ends: this run does, so
        that processes may stand still.
        """
        if self.beats:
            segment.beat(SUPERVISOR.slot, time.time_ns() // 1_000_000)
        if stops and not self._stopping:
            self._stopping = True
            self._say("STOPPING=1")
        if self._pause_s and time.monotonic() >= self._next and (ends or all_turn(segment)):
            self._next = time.monotonic() + self._pause_s
            self._say("WATCHDOG=1")

    def _say(self, words: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):                  # a name without a file
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(words.encode(), address)
        except OSError as error:
            log.warning("the service manager does not hear %s: %s", words, error.strerror)


def all_turn(segment: Segment) -> bool:
    """Whether no process hangs; one that starts, or is started again, does not."""
    from mqcore.http.processes import of_run

    now_ms = time.time_ns() // 1_000_000
    return not any(process.trouble(now_ms) for process in of_run(segment))
