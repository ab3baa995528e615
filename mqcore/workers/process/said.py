"""
Settings that are read again when an operator asks for it (SIGHUP).

A running process takes the keys that it can honour at once; the log says which other keys changed
and wait for the next start. Settings that cannot be used change nothing.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mqcore.broker.settings.live import live_part, text
from mqcore.broker.settings.model import SECTIONS, Settings
from mqcore.namesrv.settings import NamesrvSettings
from mqcore.namesrv.settings import live_part as part_of_name_server

S = TypeVar("S")


class Said(Generic[S]):
    """
    settings: what files, environment and command line say, as far as they were taken.

    read: what they say now, with ValueError or OSError where they cannot be used; take: the first
    settings with what can be honoured at once of the second; values: of each key.
    """

    def __init__(self, settings: S, read: Callable[[], S], take: Callable[[S, S], S],
                 values: Callable[[S], dict[str, Any]]) -> None:
        self.settings = settings
        self._read, self._take, self._values = read, take, values

    def again(self, log: logging.Logger, take: Callable[[S, S], S] | None = None) -> bool:
        """Read them again; whether anything was taken. take: in place of that of the object."""
        try:
            found = self._read()
            taken = (take or self._take)(self.settings, found)
        except (ValueError, OSError) as error:
            log.error("SIGHUP: the settings stay unchanged: %s", error)
            return False
        before, now, wanted = map(self._values, (self.settings, taken, found))
        news = [f"{key} = {text(now[key])} instead of {text(before[key])}" for key in sorted(now)
                if now[key] != before[key]]
        later = [key for key in sorted(now) if wanted[key] != now[key]]
        log.info("SIGHUP: settings were read again; taken: %s", ", ".join(news) or "nothing")
        if later:
            log.warning("SIGHUP: these settings wait for the next start: %s", ", ".join(later))
        self.settings = taken
        return bool(news)


def of_broker(settings: Settings, read: Callable[[], Settings]) -> Said[Settings]:
    """Those of a broker."""
    return Said(settings, read, live_part, lambda one: {
        f"{section}.{key}": getattr(getattr(one, section), key)
        for section, kind in SECTIONS.items() for key in kind.__struct_fields__})


def of_name_server(
    settings: NamesrvSettings, read: Callable[[], NamesrvSettings]
) -> Said[NamesrvSettings]:
    """Those of a name server."""
    def values(one: NamesrvSettings) -> dict[str, Any]:
        own = {f"namesrv.{key}": getattr(one, key) for key in one.__struct_fields__
               if key not in ("tls", "acl")}
        return own | {f"{section}.{key}": getattr(struct, key)
                      for section, struct in (("tls", one.tls), ("acl", one.acl))
                      for key in struct.__struct_fields__}

    return Said(settings, read, part_of_name_server, values)
