"""Request codes that a broker or name server does not serve: counted, and each logged once."""
from __future__ import annotations

import logging

from mqcore.acl.audit import name_of

CODES_MAX = 100                    # that are logged: a peer may ask for any


class Unserved:
    """count: such requests since the start."""

    def __init__(self, log: logging.Logger) -> None:
        self.count = 0
        self._log = log
        self._codes: set[int] = set()

    def note(self, code: int, remote: str) -> None:
        """remote: host:port, or '' where that is not known."""
        self.count += 1
        if code in self._codes or len(self._codes) > CODES_MAX:
            return
        self._codes.add(code)
        if len(self._codes) > CODES_MAX:
            self._log.warning("more than %d request codes are not supported: further ones are "
                              "counted only", CODES_MAX)
            return
        self._log.warning("%s (%d)%s is not supported; further requests with this code are counted "
                          "only", name_of(code), code, f" from {remote}" if remote else "")
