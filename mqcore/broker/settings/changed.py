"""
The settings that requests have changed (25): kept in a file, so that they outlive the process.

broker.md 1.2, 10.5 (RocketMQ 4.9.8: Configuration writes the whole of its settings over the file it
was started with). Ours are written by people and may come from several places, so changes have a
file of their own in the store's config folder, and win over all other places. A setting that is set
back to what those say is no change any more; without the file there is none. There is no `.bak`
beside it: it would bring back what was taken away.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mqcore.broker.settings.live import (
    AT_START,
    LIVE,
    applied,
    live_part,
    text,
    value_of,
    with_values,
)
from mqcore.broker.settings.model import SECTIONS, Settings, SettingsError
from mqcore.broker.settings.values import Values
from mqcore.broker.tables.config_file import pretty
from mqcore.store import files
from mqcore.wire import fastjson

FILE_NAME = "changedSettings.json"
MEMBER = "settings"

KEPT = LIVE | AT_START           # what the file may hold

_log = logging.getLogger(__name__)


class ChangedSettings:
    """
    The file, and the settings that it changes.

    settings: what all other places say at the start; the file is below its `config_dir`.
    wanted: the settings with all changes: what the next start begins with.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.config_dir / FILE_NAME
        self._plain = settings
        self._kept: dict[str, Any] = {}          # what the file holds
        self.wanted = settings

    def load(self) -> Settings:
        """
        The settings with the changes of the file, each of which is logged.

        What cannot be used is logged by name and left out: it never stops a start.
        """
        self._kept = self._entries()
        self.wanted = self._over(self._plain)
        return self.wanted

    def say(self, told: bytes, running: Settings, started: Settings) -> Settings | None:
        """
        The other places say something else from now on of what is honoured at once (`lines`);
        changes by request stay over it, as they do at a start. The settings that `running` of a run
        that began with `started` becomes; None: they cannot be used, which is logged, and nothing
        changes.
        """
        try:
            plain = applied(self._plain, told)
            wanted = self._over(plain)
            live = live_part(running, wanted, started)
        except SettingsError as error:
            _log.error("settings that were read again cannot be used here, those before stay: %s",
                       error)
            return None
        self._plain, self.wanted = plain, wanted
        return live

    def _over(self, plain: Settings) -> Settings:
        """`plain` with the changes of the file; the log names each."""
        settings = plain
        taken = []
        for key, value in self._kept.items():
            try:
                settings = self._with_entry(settings, key, value)
            except SettingsError as error:
                _log.warning("a setting changed by request is ignored: %s", error)
                continue
            taken.append(f"{key} = {value} instead of {value_of(plain, key)}")
        if taken:
            _log.warning("%d settings changed by request: %s (%s)", len(taken), ", ".join(taken),
                         self._path)
        return settings

    def turn(self, change: Callable[[Settings], Settings]) -> Settings:
        """All that the other places say is something else in this run; the settings then."""
        self._plain, self.wanted = change(self._plain), change(self.wanted)
        return self.wanted

    def live(self) -> Settings:
        """The settings with those changes alone that were honoured at once."""
        return live_part(self._plain, self.wanted)

    def save(self, settings: Settings) -> None:
        """Keep how `settings` differ from what the other places say. Raises OSError."""
        changes = {key: value_of(settings, key) for key in sorted(KEPT)
                   if value_of(settings, key) != value_of(self._plain, key)}
        content = pretty({MEMBER: changes}).encode("utf-8")
        if changes or self._path.exists():
            files.write_atomically(self._path, content)
        self._kept, self.wanted = dict(changes), settings

    def _entries(self) -> dict[str, Any]:
        try:
            document = fastjson.loads(files.read(self._path))
        except (FileNotFoundError, NotADirectoryError):    # the store says so itself
            return {}
        except (OSError, fastjson.JsonError) as error:
            _log.warning("settings changed by request are ignored: %s: %s", self._path, error)
            return {}
        entries = document.get(MEMBER) if isinstance(document, dict) else None
        if not isinstance(entries, dict):
            _log.warning("settings changed by request are ignored: %s: expected an object with "
                         "the member %s, an object", self._path, MEMBER)
            return {}
        return entries

    def _with_entry(self, settings: Settings, key: str, value: Any) -> Settings:
        if key not in KEPT:
            raise SettingsError(f"{self._path}: {key}: expected a setting that requests can change")
        values = Values(SECTIONS)
        section, _, name = key.partition(".")
        values.put(section, name, text(value), str(self._path), as_text=True)
        return with_values(settings, values)
