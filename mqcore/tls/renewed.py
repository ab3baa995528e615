"""
Contexts that follow their files.

A file that was replaced is taken when two looks have found the same, so that certificate and key
can be replaced one after the other. One that cannot be used leaves the old context in force.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mqcore.tls.contexts import stamps
from mqcore.tls.settings import TlsServerSettings

log = logging.getLogger("mqcore.tls")
Settings = TypeVar("Settings", bound=TlsServerSettings)
Context = TypeVar("Context")


class Renewed(Generic[Settings, Context]):
    """
    A context that follows its files.

    files  the names of the settings that name them
    make   a context of the settings; raises ValueError or OSError
    take   called with each new one, the first at once
    whose  connections, as the log calls them
    """

    def __init__(self, tls: Settings, files: Sequence[str],
                 make: Callable[[Settings], Context], take: Callable[[Context], None], *,
                 whose: str = "new connections") -> None:
        self._tls = tls
        self._files = files
        self._make = make
        self._take = take
        self._whose = whose
        self._loaded = self._seen = stamps(tls, files)
        self._look_ms = 0
        take(make(tls))

    def look(self, now_ms: int) -> None:
        """Take over files that have changed, `tls.poll_ms` after the last look."""
        if now_ms - self._look_ms < self._tls.poll_ms:
            return
        self._look_ms = now_ms
        found, before = stamps(self._tls, self._files), self._seen
        self._seen = found
        if found == self._loaded or found != before:
            return
        self._loaded = found
        try:
            context = self._make(self._tls)
        except (ValueError, OSError) as error:
            log.error("TLS goes on with the files that it has: %s", error)
            return
        self._take(context)
        log.info("TLS: %s get what the files say now: %s", self._whose, ", ".join(
            path for name in self._files if (path := getattr(self._tls, name))))
