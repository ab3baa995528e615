"""
The result of a command that reads: one document for programs, parts of a screen for people.

A command returns a View and prints nothing. The runner (`runner.py`) prints it as text, `--json`,
`--ndjson` or `-q`, and repeats it for `--watch`; other front ends take the document.
"""
from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from mqcore.admin.shell.exits import Exit
from mqcore.client.admin import Unreachable
from mqcore.wire.printable import printable

GAP = "  "


class Column(Struct, frozen=True):
    """
    A column of a table.

    title   its head
    key     the field of a row
    show    makes text of the field's value; None = str, "-" for None
    right   whether numbers stand at its right edge
    wide    only with `-o wide`
    """

    title: str
    key: str
    show: Callable[[Any], str] | None = None
    right: bool = False
    wide: bool = False

    def text(self, row: Mapping[str, Any]) -> str:
        """The cell of a row, without control characters."""
        value = row.get(self.key)
        if self.show is not None:
            return printable(self.show(value))
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list | tuple):
            return printable(", ".join(map(str, value)) or "-")
        return printable(str(value))


class Table(Struct, frozen=True):
    """
    Rows below heads.

    rows    as they stand in the document
    empty   the line in place of a table without rows
    title   a line above
    """

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    empty: str = "none"
    title: str = ""

    def lines(self, wide: bool) -> Iterator[str]:
        """The table as text, each column as wide as its longest cell."""
        if self.title:
            yield self.title
        if not self.rows:
            yield self.empty
            return
        columns = [column for column in self.columns if wide or not column.wide]
        cells = [[column.title for column in columns]]
        cells += [[column.text(row) for column in columns] for row in self.rows]
        widths = [max(map(width, texts)) for texts in zip(*cells, strict=True)]
        for row in cells:
            line = GAP.join(
                " " * (full - width(text)) + text if column.right
                else text + " " * (full - width(text))
                for text, full, column in zip(row, widths, columns, strict=True))
            yield line.rstrip()


class Facts(Struct, frozen=True):
    """Names with their values, a line each."""

    pairs: Sequence[tuple[str, Any]]
    title: str = ""

    def lines(self, wide: bool) -> Iterator[str]:
        """The names in a column, the values behind it."""
        if self.title:
            yield self.title
        full = max((width(name) for name, _ in self.pairs), default=0)
        for name, value in self.pairs:
            yield f"{name}{' ' * (full - width(name))}{GAP}{printable(str(value))}".rstrip()


class Text(Struct, frozen=True):
    """Lines of text."""

    text: Sequence[str]

    def lines(self, wide: bool) -> Iterator[str]:
        """The lines, without control characters."""
        return map(printable, self.text)


Part = Table | Facts | Text


class View(Struct, frozen=True):
    """
    The result of a command that reads.

    document   for `--json`: raw numbers, times in UTC, keys that stay
    parts      for people
    items      the key of the document's list, for `--ndjson` and `-q`; "" = the document itself
    name       the key of an item that `-q` prints
    missing    brokers and name servers that did not answer; the rest of the answer stands
    status     how the command ends when nothing is missing
    """

    document: Mapping[str, Any]
    parts: Sequence[Part] = ()
    items: str = ""
    name: str = "name"
    missing: Sequence[Unreachable] = ()
    status: Exit = Exit.DONE

    def whole(self) -> dict[str, Any]:
        """The document, with the list `unreachable` in it."""
        return {**self.document, "unreachable": [
            {"name": one.name, "address": one.address, "error": str(one.error)}
            for one in self.missing]}

    def rows(self) -> list[Mapping[str, Any]]:
        """The items of the document."""
        return list(self.document[self.items]) if self.items else [self.document]

    def lines(self, wide: bool = False) -> Iterator[str]:
        """The parts as text, an empty line between two."""
        for number, part in enumerate(self.parts):
            if number:
                yield ""
            yield from part.lines(wide)


def width(text: str) -> int:
    """How many columns of a terminal a text takes; East Asian letters take two."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


