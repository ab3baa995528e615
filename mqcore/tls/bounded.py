"""
TLS of asyncio whose peers cannot send records without data for ever: key updates, empty records,
attempts to renegotiate. The serving processes count in the same way (tls TL6).

A client that continues with a session does not show its certificate again: whether the time of that
one is over is looked at here. The serving processes give no sessions to such clients.
"""
from __future__ import annotations

import ssl
import time
from typing import Any

from mqcore.tls.library import EMPTY_BYTES_MAX


class EmptyRecords(ssl.SSLError):
    """A peer that has sent too many bytes of records without a byte of data in them."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count

    def __str__(self) -> str:
        return f"{self.count} bytes of TLS records hold no data"


class BoundedObject(ssl.SSLObject):
    """One connection. incoming: where its bytes come from; raises EmptyRecords from `read`."""

    incoming: ssl.MemoryBIO
    _empty_bytes = 0

    def do_handshake(self) -> None:
        """As SSLObject.do_handshake; raises SSLCertVerificationError, too, for an old session."""
        super().do_handshake()
        if not (self.server_side and self.session_reused):
            return
        shown = (self.getpeercert() or {}).get("notAfter")
        if isinstance(shown, str) and ssl.cert_time_to_seconds(shown) <= time.time():
            error = ssl.SSLCertVerificationError("certificate verify failed: its time is over")
            error.verify_message = "certificate has expired"
            raise error

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """As SSLObject.read."""
        before = self.incoming.pending
        try:
            got = super().read(len, buffer)
        except ssl.SSLWantReadError:
            self._empty_bytes += before - self.incoming.pending
            if self._empty_bytes > EMPTY_BYTES_MAX:
                raise EmptyRecords(self._empty_bytes) from None
            raise
        self._empty_bytes = 0
        return got


class BoundedContext(ssl.SSLContext):
    """What connections are made with that are bounded so."""

    sslobject_class = BoundedObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, *others: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, *others, **options)
        assert isinstance(made, BoundedObject)
        made.incoming = incoming
        return made
