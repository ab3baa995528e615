"""
What consumers committed to a slave while their master was away, to go there when it is back.

In config/ownOffsets.json, a file of ours alone, in the form of consumerOffset.json: a slave that
ends before its master is back still knows which offsets are its own. A master has no such file.
"""
from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mqcore.broker.tables import config_file
from mqcore.broker.tables.offset_files import MEMBER, queues_of
from mqcore.replication.role import OWN_OFFSETS_FILE
from mqcore.store import files

FILE_NAME = OWN_OFFSETS_FILE
OWN_COUNT_MAX = 100_000              # offsets of queues
ROWS_A_STEP = 1_000
_SEPARATOR = "@"
_log = logging.getLogger(__name__)


class OwnOffset(NamedTuple):
    """An offset of one queue."""

    group: str
    topic: str
    queue_id: int
    offset: int


class OwnOffsets:
    """
    Offsets that consumers committed to a slave, by queue, since its master last had them. Of more
    than OWN_COUNT_MAX the later ones are forgotten.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[tuple[str, str, int], int] = {}
        self.dirty = False                 # the file is older than this

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A consumer committed here; the last word counts, as everywhere."""
        place = group, topic, queue_id
        if place in self._offsets or len(self._offsets) < OWN_COUNT_MAX:
            self._offsets[place] = offset
            self.dirty = True

    def is_ahead(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Whether what was committed here lies behind `offset`, which is the master's."""
        return self._offsets.get((group, topic, queue_id), -1) > offset

    def all(self) -> list[OwnOffset]:
        return [OwnOffset(*place, offset) for place, offset in self._offsets.items()]

    def remove(self, commit: OwnOffset) -> None:
        """The master has it, or a later one; unless there is another one by now."""
        place = commit.group, commit.topic, commit.queue_id
        if self._offsets.get(place) == commit.offset:
            del self._offsets[place]
            self.dirty = True

    def postpone(self, commit: OwnOffset) -> None:
        """The master does not take it now: others come first."""
        place = commit.group, commit.topic, commit.queue_id
        if place in self._offsets:
            self._offsets[place] = self._offsets.pop(place)

    # -- the file -----------------------------------------------------------------------------

    def load(self) -> None:
        """What an earlier run left; a file that cannot be used is named in the log, no more."""
        try:
            stored = config_file.load(self._path) or {}
            table = config_file.entries(self._path, stored.get(MEMBER), queues_of)
        except config_file.ConfigFileError as error:
            _log.warning("offsets that were committed to this slave are not known: %s", error)
            return
        for key, queues in table.items():
            topic, _, group = key.partition(_SEPARATOR)
            for queue_id, offset in queues.items():
                self.note(group, topic, queue_id, offset)
        self.dirty = False

    def forget(self) -> None:
        """In a master: what it has is what counts. Raises OSError."""
        self._offsets.clear()
        self.dirty = False
        for path in (self._path, files.beside(self._path, ".bak")):
            if path.exists():
                files.unlink(path)

    def persist(self) -> None:
        """Write the file, now. Raises OSError."""
        for _ in self.begin():
            continue

    def begin(self) -> Iterator[None]:
        """The steps that write the file as it is now; they raise OSError, as other tables' do."""
        self.dirty = False
        return self._steps(self.all())

    def _steps(self, commits: list[OwnOffset]) -> Iterator[None]:
        table: dict[str, dict[int, int]] = {}
        for number, one in enumerate(commits, 1):
            table.setdefault(f"{one.topic}{_SEPARATOR}{one.group}", {})[one.queue_id] = one.offset
            if number % ROWS_A_STEP == 0:
                yield
        value: dict[str, Any] = {MEMBER: table}
        try:
            config_file.save(self._path, value)
        except OSError:
            self.dirty = True
            raise
        yield
