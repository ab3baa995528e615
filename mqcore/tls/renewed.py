"""
Contexts that follow their files.

A file that was replaced is taken when two looks have found the same, so that certificate and key
can be replaced one after the other. One that cannot be used leaves the old context in force, and is
tried again: the reason may be one that passes.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mqcore.stamps import Stamp
from mqcore.tls.contexts import stamps
from mqcore.tls.settings import TlsServerSettings

RETRY_MS = 5_000                   # after files that could not be used and have not changed

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
    kept   makes the context that was in force, for a successor that starts while `make` cannot;
           None: nothing was, and such a start raises what `make` did
    """

    def __init__(self, tls: Settings, files: Sequence[str],
                 make: Callable[[Settings], Context], take: Callable[[Context], None], *,
                 whose: str = "new connections",
                 kept: Callable[[], Context] | None = None) -> None:
        self._tls = tls
        self._files = files
        self._make = make
        self._take = take
        self._whose = whose
        self._loaded: tuple[Stamp, ...] | None = None      # of the files that are in force
        self._failed: tuple[Stamp, ...] | None = None      # of those that could not be used
        self._look_ms = self._failed_ms = 0
        self._trouble = ""
        self._seen = stamps(tls, files)
        try:
            take(make(tls))
            self._loaded = self._seen
        except (ValueError, OSError) as error:
            if kept is None:
                raise
            take(kept())
            self._cannot(error, 0)

    def look(self, now_ms: int) -> None:
        """Take over files that have changed, `tls.poll_ms` after the last look."""
        if now_ms - self._look_ms < self._tls.poll_ms:
            return
        self._look_ms = now_ms
        found, before = stamps(self._tls, self._files), self._seen
        self._seen = found
        if found == self._loaded:
            self._trouble = ""
            return
        if found != before or (
                found == self._failed and now_ms - self._failed_ms < RETRY_MS):
            return
        try:
            context = self._make(self._tls)
        except (ValueError, OSError) as error:
            self._cannot(error, now_ms)
            return
        self._take(context)
        self._loaded, self._failed, self._trouble = found, None, ""
        log.info("TLS: %s get what the files say now: %s", self._whose, ", ".join(
            path for name in self._files if (path := getattr(self._tls, name))))

    def _cannot(self, error: Exception, now_ms: int) -> None:
        """Once for each trouble."""
        self._failed, self._failed_ms = self._seen, now_ms
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.error("TLS keeps the files that it has: %s", error)
