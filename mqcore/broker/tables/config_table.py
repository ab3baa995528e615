"""
What the tables of topics and of groups share: named configs that serving processes see, kept as one
of stock's config files with a version.

broker.md 1.5, store.md 12.1 (RocketMQ 4.9.8: ConfigManager, TopicConfigManager,
SubscriptionGroupManager).
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mqcore.broker.settings.model import BrokerSettings
from mqcore.broker.tables import config_file
from mqcore.wire import fastjson
from mqcore.wire.topics import DataVersion

ENTRIES_A_STEP = 500                # of a file that are written as text
ENTRIES_A_TURN = 200                # of a master's table that are taken over between two pauses


class TablesFull(Exception):
    """The shared tables have no room for one more name; the text says which setting to raise."""


class NamedConfig(Protocol):
    """One entry of such a table."""

    @property
    def name(self) -> str: ...

    def as_json(self) -> dict[str, Any]: ...


Config = TypeVar("Config", bound=NamedConfig)
_log = logging.getLogger(__name__)


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

    A change that was asked for is undone when the file that was to have it is refused: what a
    kill would take away is not shown longer than the file takes.
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
        self._set_aside: dict[str, dict[str, Any]] = {}  # of the file, and not in the table
        self._texts: dict[str, tuple[Config, str]] = {}      # in the file, by name
        self._unknown_version: dict[str, Any] = {}
        self._unknown_tables: dict[str, Any] = {}        # beside `member` in the file
        self.version = DataVersion()
        self.dirty = False                 # the file is older than the table
        # changed entries, as the last file has them: since it was begun, and in the one being made
        self._changed_since: dict[str, Config | None] = {}       # None: it was not there
        self._in_writing: dict[str, Config | None] = {}
        self._file_version = DataVersion()           # of the last file, while changes are in none
        self._version_in_writing = DataVersion()
        self.follows = False               # in a slave: the version is that of its master's table

    def _begin(
        self, built_in: Iterable[Config], parse: Callable[[str, Any], Config], now_ms: int
    ) -> dict[str, Config]:
        """
        Only the built-in entries, with the file's version; returns the file's entries by name.
        Raises ConfigFileError.
        """
        self.version = DataVersion(timestamp=now_ms)
        self._entries = {entry.name: entry for entry in built_in}
        self._set_aside, self._unknown_version, self._unknown_tables = {}, {}, {}
        stored = config_file.load(self._path)
        if stored is None:
            return {}
        self.version = config_file.parsed(
            self._path, stored.get("dataVersion"), DataVersion.from_json
        )
        found = config_file.entries(self._path, stored.get(self.member), parse)
        self._keep_unknown(stored)
        return found

    def _keep_unknown(self, stored: dict[str, Any]) -> None:
        """What a newer broker wrote beside the entries goes back into the file."""
        kept = partial(config_file.unknown_members, self._path)
        self._unknown_tables = kept(stored, ("dataVersion", self.member))
        self._unknown_version = kept(stored.get("dataVersion"), DataVersion().as_json())

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Other rules from now on; the entries there are stay."""
        self._settings = settings

    def persist(self) -> None:
        """Write the file. Raises OSError."""
        for _ in self.begin():
            continue

    def begin(self) -> Iterator[None]:
        """
        The steps that write the file, as the table is now: an iterator to be run to its end, by any
        thread, before the next. It raises OSError; then the table is `dirty` as before.
        """
        self.dirty = False
        self._in_writing, self._changed_since = self._changed_since, {}
        self._version_in_writing = self.version
        return self._steps(self.version, list(self._entries.items()))

    def saved(self, error: OSError | None) -> None:
        """The steps of a file have ended, or failed: then its changes are undone."""
        written, self._in_writing = self._in_writing, {}
        if error is None:
            self._file_version = self._version_in_writing
            return
        for name, entry in written.items():
            if name in self._changed_since:            # the next file is to have that change
                self._changed_since[name] = entry
            else:
                self._undo(name, entry)

    def _undo(self, name: str, config: Config | None) -> None:
        """An entry is again as the last file has it."""
        if config is None:
            self._entries.pop(name, None)
            self._withdraw(name)
        else:
            self._entries[name] = config
            try:
                self._show(config)
            except TablesFull as error:                # another one has its place meanwhile
                _log.error("%.160s is not shown until the next start: %s", name, error)
        self.version = next_version(self.version, self.version.timestamp)
        self.dirty = True

    def as_saved(self) -> tuple[DataVersion, list[Config]]:
        """The version and the entries without the changes that no file has yet."""
        unsaved = {**self._changed_since, **self._in_writing}
        if not unsaved:
            return self.version, self.all()
        entries = dict(self._entries)
        for name, config in unsaved.items():
            if config is None:
                entries.pop(name, None)
            else:
                entries[name] = config
        return self._file_version, list(entries.values())

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the file."""
        return False

    @property
    def count(self) -> int:
        """Of entries."""
        return len(self._entries)

    def _steps(
        self, version: DataVersion, entries: list[tuple[str, Config]],
    ) -> Iterator[None]:
        try:
            pieces = []
            for piece in self._pieces(version, entries):
                pieces.append(piece.encode("utf-8"))
                yield
            config_file.save_bytes(self._path, pieces)
        except OSError:
            self.dirty = True
            raise
        if len(self._texts) > 2 * len(entries):
            self._texts = {}           # most of them are of entries that have gone

    def _pieces(
        self, version: DataVersion, entries: list[tuple[str, Config]],
    ) -> Iterator[str]:
        """The text of the file: the table, and all that was there and is not ours."""
        quote, pretty, merged = fastjson.quote, config_file.pretty, config_file.merged
        texts = {
            **{name: pretty(value, 1) for name, value in self._unknown_tables.items()
               if value is not None},
            "dataVersion": pretty(merged(version.as_json(), self._unknown_version), 1),
        }
        mark = "{"
        for name in sorted({*texts, self.member}):
            head = f"{mark}\n\t{quote(name)}:"
            mark = ","
            if name == self.member:
                yield from self._table_pieces(head, entries)
            else:
                yield head + texts[name]
        yield "\n}"

    def _table_pieces(self, head: str, entries: list[tuple[str, Config]]) -> Iterator[str]:
        quote, known = fastjson.quote, dict(entries)
        lines = chain(
            (f"\t\t{quote(name)}:{self._entry_text(name, entry)}" for name, entry in entries),
            (f"\t\t{quote(name)}:{config_file.pretty(members, 2)}"
             for name, members in self._set_aside.items() if name not in known))
        inner = "{\n"
        while some := list(islice(lines, ENTRIES_A_STEP)):
            yield f"{head}{inner}" + ",\n".join(some)
            head, inner = "", ",\n"
        yield f"{head}{{}}" if head else "\n\t}"

    def make_texts(self) -> None:
        """Make the text of each entry now, and not in the first request that changes one."""
        for name, entry in self._entries.items():
            self._entry_text(name, entry)

    def _entry_text(self, name: str, entry: Config) -> str:
        """An entry in the file; made once, for of many thousands few change at a time."""
        known = self._texts.get(name)
        if known is None or known[0] is not entry:
            known = self._texts[name] = entry, config_file.pretty(entry.as_json(), 2)
        return known[1]

    def as_json(self) -> dict[str, Any]:
        """The table as an answer's body (remoting.md 5.4)."""
        return {
            "dataVersion": self.version.as_json(),
            self.member: {name: entry.as_json() for name, entry in self._entries.items()},
        }

    def shown(self) -> dict[str, Any]:
        """`as_json` with the entries themselves, for a text that is written in turns."""
        return {"dataVersion": self.version.as_json(), self.member: dict(self._entries)}

    def get(self, name: str) -> Config | None:
        return self._entries.get(name)

    def has(self, name: str) -> bool:
        """Whether an entry is in the table itself, not there by its name alone."""
        return name in self._entries

    def all(self) -> list[Config]:
        return list(self._entries.values())

    def delete(self, name: str, now_ms: int) -> bool:
        """Forget an entry; whether there was one."""
        if name not in self._entries:
            return False
        self._note(name)
        del self._entries[name]
        self._withdraw(name)
        self._changed(now_ms)
        return True

    def follow(self, found: dict[str, Config], version: DataVersion) -> Generator[None, None, None]:
        """
        Be the master's table, of this version. With pauses: the version is taken over last, so that
        what stops in between is done again. Raises TablesFull.
        """
        for number, name in enumerate([*self._entries, *found], 1):
            entry = found.get(name)
            if entry is None:
                if self._entries.pop(name, None) is not None:
                    self._withdraw(name)
            elif self._entries.get(name) != entry:
                self._show(entry)
                self._entries[name] = entry
            self.dirty = True
            if number % ENTRIES_A_TURN == 0:
                yield
        self.version = version
        self.dirty = True

    def _show(self, entry: Config) -> None:
        """Publish an entry of another's making, if it can be."""
        self._publish(entry)

    def _put(self, entry: Config, now_ms: int, *, is_kept: bool = False) -> None:
        """Create or replace an entry, whatever becomes of the file if it is. Raises TablesFull."""
        self._publish(entry)
        if not is_kept:
            self._note(entry.name)
        self._entries[entry.name] = entry
        self._changed(now_ms)

    def _note(self, name: str) -> None:
        """An entry is about to change."""
        if not (self._changed_since or self._in_writing):
            self._file_version = self.version
        self._changed_since.setdefault(name, self._entries.get(name))

    def lead(self, now_ms: int) -> None:
        """This broker's word counts from now on, and is told from the former master's."""
        self.follows = False
        self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        if not self.follows:
            self.version = next_version(self.version, now_ms)
        self.dirty = True
