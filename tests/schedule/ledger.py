"""What a store's commit log says of delayed messages: when each was due, and when it came."""
from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqcore.store.record import parse
from mqcore.wire.properties import decode_properties
from tests.schedule.desk import SCHEDULE_TOPIC

HEAD = struct.Struct(">iI")
MESSAGE, BLANK = 0xDAA320A7, 0xCBD43194


def records(log: Path) -> Iterator[dict[str, Any]]:
    """Every record of a log, in order."""
    for segment in sorted(log.iterdir()):
        data = memoryview(segment.read_bytes())
        at = 0
        while at + HEAD.size <= len(data):
            size, magic = HEAD.unpack_from(data, at)
            if magic != MESSAGE:
                assert magic in (0, BLANK), f"{segment.name}: {magic:#x} at {at}"
                break
            yield parse(bytes(data[at:at + size]))
            at += size


@dataclass
class Ledger:
    """By message name (UNIQ_KEY, or the body)."""

    due_ms: dict[str, int] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    came_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    wanted: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    came: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    def lateness_ms(self) -> list[int]:
        """Of each message that came, ascending."""
        return sorted(times[0] - self.due_ms[name] for name, times in self.came_ms.items())

    def pending(self) -> set[str]:
        return self.due_ms.keys() - self.came_ms.keys()

    def check(self, *, complete: bool = True) -> None:
        """AssertionError unless each came once, none early, and each level in its order."""
        doubled = {name: times for name, times in self.came_ms.items() if len(times) > 1}
        assert not doubled, f"{len(doubled)} came more than once: {list(doubled.items())[:5]}"
        early = {name: times[0] - self.due_ms[name] for name, times in self.came_ms.items()
                 if times[0] < self.due_ms[name]}
        assert not early, f"{len(early)} came early, ms: {list(early.items())[:5]}"
        for level, names in self.came.items():
            assert names == self.wanted[level][:len(names)], f"order of level {level}"
        if complete:
            assert not self.pending(), f"{len(self.pending())} did not come"


def read_ledger(log: Path, delays_ms: Mapping[int, int]) -> Ledger:
    """The ledger of a log; delays_ms: by level."""
    ledger = Ledger()
    for record in records(log):
        properties = decode_properties(record["properties"])
        if "REAL_TOPIC" not in properties:
            continue
        name = properties.get("UNIQ_KEY") or record["body"].decode(errors="replace")
        level = int(properties["DELAY"])
        if record["topic"] == SCHEDULE_TOPIC:
            assert record["queueId"] == level - 1
            ledger.due_ms[name] = record["storeTimestamp"] + delays_ms[level]
            ledger.level[name] = level
            ledger.wanted[level].append(name)
        else:
            assert record["topic"] == properties["REAL_TOPIC"]
            assert record["queueId"] == int(properties["REAL_QID"])
            ledger.came_ms[name].append(record["storeTimestamp"])
            ledger.came[level].append(name)
    return ledger
