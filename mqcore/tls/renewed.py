"""
Contexts that follow their files.

A file that was replaced is taken when two looks have found the same, so that certificate and key
can be replaced one after the other. One that cannot be used leaves the old context in force.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from mqcore.tls.contexts import stamps
from mqcore.tls.settings import TlsServerSettings

log = logging.getLogger("mqcore.tls")
Context = TypeVar("Context")


class Renewed(Generic[Context]):
    """
    A context that follows its files.

    make   a context of the settings; raises ValueError or OSError
    take   called with each new one, the first at once
    """

    def __init__(self, tls: TlsServerSettings, make: Callable[[TlsServerSettings], Context],
                 take: Callable[[Context], None]) -> None:
        self._tls = tls
        self._make = make
        self._take = take
        self._loaded = self._seen = stamps(tls)
        self._look_ms = 0
        take(make(tls))

    def look(self, now_ms: int) -> None:
        """Take over files that have changed, `tls.poll_ms` after the last look."""
        if not self._tls.serves or now_ms - self._look_ms < self._tls.poll_ms:
            return
        self._look_ms = now_ms
        found, before = stamps(self._tls), self._seen
        self._seen = found
        if found == self._loaded or found != before:
            return
        self._loaded = found
        try:
            context = self._make(self._tls)
        except (ValueError, OSError) as error:
            log.error("TLS goes on with the certificate that it has: %s", error)
            return
        self._take(context)
        log.info("TLS: new connections get the certificate that %s has now", self._tls.certificate)
