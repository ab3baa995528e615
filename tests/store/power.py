"""What a machine that lost its power finds on its disk, from a recording of the store's writes."""
from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
Event = tuple[str, str, int, bytes | int]
# the parts of a write that got through
Survive = Callable[[bytes], Iterator[tuple[int, bytes]]]


@dataclass
class File:
    """One file: what is certainly on the disk, and what was written since its last sync."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    pushed: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0
    named: bool = True                  # whether its folder certainly has its name

    def settle(self) -> None:
        self.grow(self.durable)
        for offset, data in self.pending:
            self.durable[offset:offset + len(data)] = data
        self.pending.clear()
        self.pushed.clear()

    def empty_cache(self) -> None:
        """
        A sync of another file on the same disk: what was handed to it is there. Of bytes behind the
        end that a sync has seen nothing is: their blocks are recorded nowhere.
        """
        rest = []
        for offset, data in self.pending:
            covered = any(start <= offset and offset + len(data) <= end
                          for start, end in self.pushed)
            if covered and offset + len(data) <= len(self.durable):
                self.durable[offset:offset + len(data)] = data
            else:
                rest.append((offset, data))
        self.pending = rest
        self.pushed.clear()

    def grow(self, content: bytearray) -> None:
        if len(content) < self.size:
            content.extend(bytes(self.size - len(content)))


class Disk:
    """Follows a recording event by event."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}

    def apply(self, event: Event) -> None:
        kind, path, number, data = event
        if kind == "create":
            self.files.setdefault(path, File()).named = False
        elif kind == "write":
            assert isinstance(data, bytes)
            self.files.setdefault(path, File()).pending.append((number, data))
        elif kind == "truncate":
            file = self.files.setdefault(path, File())
            file.size = max(file.size, number)
        elif kind == "push":
            assert isinstance(data, int)
            self.files.setdefault(path, File()).pushed.append((number, number + data))
        elif path in self.files:
            self.files[path].settle()
            for other in self.files.values():
                other.empty_cache()
        elif kind == "sync":
            for name, file in self.files.items():
                file.named = file.named or os.path.dirname(name) == path

    def image(self, root: Path, target: Path, survive: Survive, *,
              forget_names: bool = False) -> None:
        """
        Write the files below `target`; forget_names: only those that were there at the last sync of
        their folder.
        """
        for path, file in self.files.items():
            if forget_names and not file.named:
                continue
            content = bytearray(file.durable)
            file.grow(content)
            for offset, data in file.pending:
                for start, part in survive(data):
                    content[offset + start:offset + start + len(part)] = part
            place = target / Path(path).relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def everything(data: bytes) -> Iterator[tuple[int, bytes]]:
    yield 0, data


def nothing(_data: bytes) -> Iterator[tuple[int, bytes]]:
    return iter(())


class Prefix:
    """The first `writes` pending writes got through, the next one in part, the rest not."""

    def __init__(self, dice: random.Random) -> None:
        self._left = dice.randrange(4)
        self._dice = dice

    def __call__(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        self._left -= 1
        if self._left >= 0:
            yield 0, data
        elif self._left == -1:
            yield 0, data[:self._dice.randrange(len(data) + 1)]


class Sectors:
    """A random subset of each write's 512-byte sectors got through; one of them may be torn."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._chance = dice.choice((0.2, 0.5, 0.9))

    def __call__(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        for start in range(0, len(data), SECTOR):
            if self._dice.random() < self._chance:
                part = data[start:start + SECTOR]
                if self._dice.random() < 0.1:
                    part = part[:self._dice.randrange(len(part) + 1)]
                yield start, part


def ways(dice: random.Random) -> dict[str, Survive]:
    """The ways in which writes survive, each with its dice."""
    return {"everything": everything, "nothing": nothing, "prefix": Prefix(dice),
            "sectors": Sectors(dice)}


def moments(
    events: list[Event], root: Path, dice: random.Random, count: int,
) -> list[tuple[int, Survive]]:
    """
    When the power is cut, as indices of the event before it, and how writes survive; in order. Each
    kind of event on each kind of file meets each way at least once, the others are the dice's,
    until they are `count`.
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for number, (kind, path, _, _) in enumerate(events):
        kinds.setdefault((kind, Path(path).relative_to(root).parts[0]), []).append(number)
    found = [(dice.choice(numbers), survive)
             for numbers in kinds.values() for survive in ways(dice).values()]
    assert len(found) <= count, f"{len(found)} images show each kind once"
    while len(found) < count:
        found.append((dice.randrange(len(events)), dice.choice(list(ways(dice).values()))))
    return sorted(found, key=lambda moment: moment[0])
