"""Words, file and severity for what the native passes find (findings.pxd)."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mqcore.layout import (
    INDEX_BEGIN_POSITION,
    INDEX_BEGIN_TIME,
    INDEX_END_POSITION,
    INDEX_END_TIME,
    INDEX_NEXT_ENTRY,
    INDEX_SLOTS_USED,
    QUEUE_ID_END,
)
from mqcore.store.record import ParseResult
from mqcore.store.verify.files import (
    ENTRY_SIZE,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    StoreListing,
)
from mqcore.store.verify.findings import Field, FindingKind, IndexField
from mqcore.store.verify.report import DAMAGE, MEND, NamedFinding

RESULTS: dict[int, str] = {
    ParseResult.PARSE_BAD_MAGIC: "no record magic",
    ParseResult.PARSE_BAD_SIZE: "sizes that do not fit each other or the segment",
    ParseResult.PARSE_BAD_CRC: "a body with another CRC",
    ParseResult.PARSE_BAD_POSITION: "a record of another position",
    ParseResult.PARSE_BAD_CHECKSUM: "other bytes than those of its checksum",
    ParseResult.PARSE_NO_CHECKSUM: "a record without its checksum"}
FIELDS: dict[int, str] = {
    Field.FIELD_QUEUE_ID: "queueId", Field.FIELD_QUEUE_OFFSET: "queueOffset",
    Field.FIELD_SYS_FLAG: "sysFlag", Field.FIELD_STORE_TIME: "storeTimestamp",
    Field.FIELD_BORN_PORT: "bornHost's port", Field.FIELD_STORE_PORT: "storeHost's port",
    Field.FIELD_RECONSUME_TIMES: "reconsumeTimes", Field.FIELD_TOPIC: "topic",
    Field.FIELD_MULTI_DISPATCH: "INNER_MULTI_QUEUE_OFFSET beside INNER_MULTI_DISPATCH"}
FIELD_VALUES: dict[int, str] = {
    Field.FIELD_QUEUE_ID: f"0 to {QUEUE_ID_END - 1}",
    Field.FIELD_SYS_FLAG: "only bits below 0x800", Field.FIELD_STORE_TIME: "a time",
    Field.FIELD_BORN_PORT: "at most 65535", Field.FIELD_STORE_PORT: "at most 65535",
    Field.FIELD_TOPIC: "a name that a folder can have",
    Field.FIELD_MULTI_DISPATCH: "an offset for each name"}
HEADER_FIELDS: dict[int, tuple[str, int]] = {
    IndexField.INDEX_FIELD_COUNT: ("indexCount", INDEX_NEXT_ENTRY),
    IndexField.INDEX_FIELD_SLOTS_USED: ("hashSlotCount", INDEX_SLOTS_USED),
    IndexField.INDEX_FIELD_BEGIN_POSITION: ("beginPhyOffset", INDEX_BEGIN_POSITION),
    IndexField.INDEX_FIELD_END_POSITION: ("endPhyOffset", INDEX_END_POSITION),
    IndexField.INDEX_FIELD_BEGIN_TIME: ("beginTimestamp", INDEX_BEGIN_TIME),
    IndexField.INDEX_FIELD_END_TIME: ("endTimestamp", INDEX_END_TIME)}


@dataclass
class Context:
    """
    What the words need to know.

    queues: (topic, queue id) by number; unclean: the last run did not end cleanly; replay: where
    the start after it reads again from, in bytes.
    """

    files: StoreListing
    queues: list[tuple[str, int]]
    unclean: bool
    replay: int = 0
    rules: dict[int, Callable[[dict[str, int]], tuple[str, int | None, str]]] = field(init=False)

    def __post_init__(self) -> None:
        self.rules = {
            FindingKind.FOUND_BAD_RECORD: self._bad_record,
            FindingKind.FOUND_UNREADABLE: self._unreadable,
            FindingKind.FOUND_BLANK_SIZE: self._blank,
            FindingKind.FOUND_NO_BLANK: self._no_blank,
            FindingKind.FOUND_FIELD: self._field,
            FindingKind.FOUND_OFFSET_GAP: self._gap,
            FindingKind.FOUND_ENTRY_POSITION: self._entry_position,
            FindingKind.FOUND_ENTRY_SIZE: self._entry_size,
            FindingKind.FOUND_ENTRY_TAG: self._entry_tag,
            FindingKind.FOUND_ENTRY_STRAY: self._entry_stray,
            FindingKind.FOUND_ENTRY_BEYOND: self._entry_beyond,
            FindingKind.FOUND_ENTRY_ORDER: self._entry_order,
            FindingKind.FOUND_ENTRY_GARBAGE: self._entry_garbage,
            FindingKind.FOUND_ENTRY_HOLE: self._entry_hole,
            FindingKind.FOUND_EXT_UNIT: self._ext_unit,
            FindingKind.FOUND_QUEUE_UNREADABLE: self._queue_unreadable,
            FindingKind.FOUND_INDEX_HEADER: self._index_header,
            FindingKind.FOUND_INDEX_ENTRY: self._index_entry,
            FindingKind.FOUND_INDEX_CHAIN: self._index_chain,
            FindingKind.FOUND_INDEX_SLOT: self._index_slot,
            FindingKind.FOUND_INDEX_STRAY: self._index_stray,
            FindingKind.FOUND_INDEX_SECONDS: self._index_seconds,
            FindingKind.FOUND_INDEX_BEYOND: self._index_beyond,
            FindingKind.FOUND_INDEX_OPEN_SLOT: self._index_open_slot,
        }

    def finding(self, found: dict[str, int]) -> NamedFinding:
        file, position, text = self.rules[found["kind"]](found)
        return NamedFinding(self._severity(found), file, position, text)

    def _severity(self, found: dict[str, int]) -> str:
        kind = found["kind"]
        if not self.unclean:
            return DAMAGE
        newest = found["number"] == len(self.files.index) - 1
        if kind in (FindingKind.FOUND_ENTRY_BEYOND, FindingKind.FOUND_INDEX_BEYOND):
            return MEND                                    # cut with the log's torn end
        if kind == FindingKind.FOUND_ENTRY_HOLE and found["found"] >= self.replay:
            return MEND                                    # pages reach the disk in any order
        if kind in (FindingKind.FOUND_INDEX_HEADER, FindingKind.FOUND_INDEX_OPEN_SLOT) and newest:
            return MEND                                    # killed between two words of one entry
        return DAMAGE

    # -- places ------------------------------------------------------------------------------------

    def log(self, position: int) -> tuple[str, int]:
        """File and byte of a log position."""
        for start, size in reversed(self.files.segments):
            if start <= position:
                if position >= start + size and start + size == position:
                    return f"commitlog/{start:020d}", size
                return f"commitlog/{start:020d}", position - start
        return "commitlog", position

    def queue(self, number: int) -> str:
        topic, queue_id = self.queues[number]
        return f"consumequeue/{topic}/{queue_id}"

    def entry(self, number: int, offset: int) -> tuple[str, int]:
        """File and byte of a queue's entry."""
        size = self.files.file_entries * ENTRY_SIZE
        at = offset * ENTRY_SIZE
        return f"{self.queue(number)}/{at // size * size:020d}", at % size

    def index(self, number: int) -> str:
        return f"index/{self.files.index[number].name}"

    def index_entry(self, number: int, entry: int) -> tuple[str, int]:
        return (self.index(number), INDEX_HEADER + INDEX_SLOT * self.files.index_slots
                + INDEX_ENTRY * entry)

    # -- the commit log ----------------------------------------------------------------------------

    def _bad_record(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.log(f["position"]),
                f"{RESULTS.get(f['found'], 'something unreadable')}, expected a whole record that "
                f"says it lies at {f['position']}; whole records follow from log position "
                f"{f['expected']} on")

    def _unreadable(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        behind = ("no whole record follows" if f["expected"] < 0
                  else f"whole records follow from log position {f['expected']} on")
        return *self.log(f["position"]), f"cannot be read (errno {f['found']}); {behind}"

    def _blank(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.log(f["position"]),
                f"a blank record of {f['found']} bytes, expected {f['expected']}: all that "
                "is left of the segment")

    def _no_blank(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.log(f["position"] - 1),
                "a record ends with the segment, expected a blank record of 8 bytes or more "
                "behind it")

    def _field(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        name = FIELDS[f["detail"]]
        expected = FIELD_VALUES.get(f["detail"], "0 or more")
        if f["detail"] == Field.FIELD_TOPIC:
            return (*self.log(f["position"]),
                    f"the record's topic is not {expected}")
        if f["detail"] == Field.FIELD_QUEUE_OFFSET and f["found"] > 0:
            expected = "0 in a prepared or rolled back record"
        return *self.log(f["position"]), f"the record's {name} is {f['found']}, expected {expected}"

    def _gap(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        topic, queue_id = self.queues[f["number"]]
        return (*self.log(f["position"]),
                f"the record has queue offset {f['found']} in {topic}/{queue_id}, expected "
                f"{f['expected']}: records before it are gone")

    # -- consume queues ----------------------------------------------------------------------------

    def _entry_position(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} points to log position {f['found']}, expected "
                f"{f['expected']}, where the record of this number lies")

    def _entry_size(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} has record size {f['found']}, expected {f['expected']}")

    def _entry_tag(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} has tag code {f['found']}, expected {f['expected']}")

    def _entry_stray(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} points to log position {f['found']}, expected a whole "
                "record of this queue and number there")

    def _entry_beyond(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} points to log position {f['found']}, expected one before the "
                f"log's end at {f['expected']}")

    def _entry_order(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} points to log position {f['found']}, expected one behind "
                f"{f['expected']}, to which the entry before points")

    def _entry_garbage(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} has record size {f['found']} among other bytes, expected an "
                "entry, a filler or zeros")

    def _entry_hole(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"zeros from entry {f['detail']} on, expected entries: others follow")

    def _ext_unit(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.entry(f["number"], f["detail"]),
                f"entry {f['detail']} names byte {f['found']} of the ext files, expected a unit "
                f"with tag code {f['expected']} and the record's store time there")

    def _queue_unreadable(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return *self.entry(f["number"], f["detail"]), f"cannot be read (errno {f['found']})"

    # -- the key index -----------------------------------------------------------------------------

    def _index_header(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        name, at = HEADER_FIELDS[f["detail"]]
        return (self.index(f["number"]), at,
                f"the header's {name} is {f['found']}, expected {f['expected']}")

    def _index_entry(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        place = self.index_entry(f["number"], f["detail"])
        if f["expected"] == IndexField.INDEX_FIELD_HASH:
            return *place, f"entry {f['detail']} has hash {f['found']}, expected 0 or more"
        if f["expected"] == IndexField.INDEX_FIELD_ORDER:
            return (*place, f"entry {f['detail']} points to log position {f['position']}, expected "
                            f"{f['found']} or more, as the entry before")
        return *place, "entry 0 is in use, expected zeros"

    def _index_chain(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.index_entry(f["number"], f["detail"]),
                f"entry {f['detail']} names {f['found']} as the one before in its slot, expected "
                f"{f['expected']}")

    def _index_slot(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (self.index(f["number"]), INDEX_HEADER + INDEX_SLOT * f["detail"],
                f"slot {f['detail']} names entry {f['found']}, expected its newest, "
                f"{f['expected']}")

    def _index_open_slot(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (self.index(f["number"]), INDEX_HEADER + INDEX_SLOT * f["detail"],
                f"slot {f['detail']} names entry {f['found']}, which the header does not count yet")

    def _index_stray(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.index_entry(f["number"], f["detail"]),
                f"entry {f['detail']} has hash {f['found']} for log position {f['position']}, "
                "expected a record with such a key there")

    def _index_seconds(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.index_entry(f["number"], f["detail"]),
                f"entry {f['detail']} has {f['found']} s, expected {f['expected']} s from the "
                "file's begin to its record's store time")

    def _index_beyond(self, f: dict[str, int]) -> tuple[str, int | None, str]:
        return (*self.index_entry(f["number"], f["detail"]),
                f"entry {f['detail']} points to log position {f['position']}, expected one before "
                f"the log's end at {f['expected']}")


def queue_name(queue: dict[str, Any]) -> tuple[str, int]:
    """(topic, queue id) of what LogVerifier.queue returns."""
    topic = queue["topic"]
    assert isinstance(topic, bytes)
    return topic.decode("utf-8", "surrogateescape"), int(queue["queue_id"])
