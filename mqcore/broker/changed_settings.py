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
from typing import Any

from msgspec.structs import replace

from mqcore.broker.config_file import pretty
from mqcore.broker.settings import SECTIONS, Settings, SettingsError
from mqcore.broker.settings_sources import Values, check
from mqcore.store import files
from mqcore.wire import fastjson

FILE_NAME = "changedSettings.json"
MEMBER = "settings"

# What a request can change: only what the coordinator alone looks at, as it looks.
LIVE = frozenset((
    "broker.permission", "broker.auto_create_topic", "broker.auto_create_group",
    "broker.notify_consumers_enable", "broker.client_expiry_ms",
    "broker.queue_lock_expiry_ms", "broker.disable_consume_if_consumer_read_slowly",
    "broker.consumer_fallbehind_threshold_bytes", "broker.offsets_persist_interval_ms",
    "store.query_count_max", "store.query_unique_count_max",
))

_log = logging.getLogger(__name__)


def text(value: Any) -> str:
    """A setting's value as files and requests write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ";".join(str(item) for item in value)
    return str(value)


def with_values(settings: Settings, values: Values) -> Settings:
    """Settings with those of `values` in place of their own. Raises SettingsError."""
    changed = replace(
        settings, broker=replace(settings.broker, **values.section("broker")),
        store=replace(settings.store, **values.section("store")),
    )
    check(changed, values)
    return changed


class ChangedSettings:
    """
    The file, and the settings that it changes.

    settings: what all other places say; the file is below its `config_dir`.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.config_dir / FILE_NAME
        self._plain = settings

    def load(self) -> Settings:
        """
        The settings with the changes of the file, each of which is logged.

        What cannot be used is logged by name and left out: it never stops a start.
        """
        settings = self._plain
        taken = []
        for key, value in self._entries().items():
            try:
                settings = self._with_entry(settings, key, value)
            except SettingsError as error:
                _log.warning("a setting changed by request is ignored: %s", error)
                continue
            taken.append(f"{key} = {value} instead of {_value(self._plain, key)}")
        if taken:
            _log.warning("%d settings changed by request: %s (%s)", len(taken), ", ".join(taken),
                         self._path)
        return settings

    def save(self, settings: Settings) -> None:
        """Keep how `settings` differ from what the other places say. Raises OSError."""
        changes = {key: _value(settings, key) for key in sorted(LIVE)
                   if _value(settings, key) != _value(self._plain, key)}
        content = pretty({MEMBER: changes}).encode("utf-8")
        if changes or self._path.exists():
            files.write_atomically(self._path, content)

    def _entries(self) -> dict[str, Any]:
        try:
            document = fastjson.loads(files.read(self._path))
        except FileNotFoundError:
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
        if key not in LIVE:
            raise SettingsError(f"{self._path}: {key}: expected a setting that requests can change")
        values = Values(SECTIONS)
        section, _, name = key.partition(".")
        values.put(section, name, text(value), str(self._path), as_text=True)
        return with_values(settings, values)


def _value(settings: Settings, key: str) -> str:
    section, _, name = key.partition(".")
    return text(getattr(getattr(settings, section), name))
