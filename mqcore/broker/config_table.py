"""
What the tables of topics and of groups share: named configs that serving processes see, kept as one
of stock's config files with a version.

broker.md 1.5, store.md 12.1 (RocketMQ 4.9.8: ConfigManager, TopicConfigManager,
SubscriptionGroupManager).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mqcore.broker import config_file
from mqcore.broker.settings import BrokerSettings
from mqcore.wire.topics import DataVersion


class TablesFull(Exception):
    """The shared tables have no room for one more name; the text says which setting to raise."""


class NamedConfig(Protocol):
    """One entry of such a table."""

    @property
    def name(self) -> str: ...

    def as_json(self) -> dict[str, Any]: ...


Config = TypeVar("Config", bound=NamedConfig)


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version after a change (broker.md 1.5)."""
    return DataVersion(counter=version.counter + 1, timestamp=now_ms)


def fits(name: str, length_max: int) -> bool:
    """True when a name has 1 to `length_max` bytes: tables and records have room for no more."""
    return 0 < len(name.encode("utf-8", "replace")) <= length_max


class ConfigTable(Generic[Config]):
    """
    Configs by name. `publish` and `withdraw` keep the shared tables in step; `publish` may raise
    TablesFull, then nothing has changed.
    """

    member: ClassVar[str]              # of the file's object, which holds the table

    def __init__(
        self,
        settings: BrokerSettings,
        path: Path,
        publish: Callable[[Config], None],
        withdraw: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._path = path
        self._publish = publish
        self._withdraw = withdraw
        self._entries: dict[str, Config] = {}
        self.version = DataVersion()
        self.dirty = False                 # the file is older than the table

    def _begin(
        self, built_in: Iterable[Config], parse: Callable[[str, Any], Config], now_ms: int
    ) -> dict[str, Config]:
        """
        Only the built-in entries, with the file's version; returns the file's entries by name.
        Raises ConfigFileError.
        """
        self.version = DataVersion(timestamp=now_ms)
        self._entries = {entry.name: entry for entry in built_in}
        stored = config_file.load(self._path)
        if stored is None:
            return {}
        self.version = config_file.parsed(
            self._path, stored.get("dataVersion"), DataVersion.from_json
        )
        return config_file.entries(self._path, stored.get(self.member), parse)

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Other rules from now on; the entries there are stay."""
        self._settings = settings

    def persist(self) -> None:
        """Write the file. Raises OSError."""
        config_file.save(self._path, self.as_json())
        self.dirty = False

    def as_json(self) -> dict[str, Any]:
        """The file's object, which is an answer's body too (remoting.md 5.4)."""
        return {
            "dataVersion": self.version.as_json(),
            self.member: {name: entry.as_json() for name, entry in self._entries.items()},
        }

    def get(self, name: str) -> Config | None:
        return self._entries.get(name)

    def all(self) -> list[Config]:
        return list(self._entries.values())

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget an entry; whether there was one."""
        if self._entries.pop(name, None) is None:
            return False
        self._withdraw(name)
        self._changed(now_ms)
        return True

    def _put(self, entry: Config, now_ms: int) -> None:
        """Create or replace an entry. Raises TablesFull."""
        self._publish(entry)
        self._entries[entry.name] = entry
        self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        self.version = next_version(self.version, now_ms)
        self.dirty = True
