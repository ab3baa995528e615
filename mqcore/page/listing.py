"""A table of a command as a page shows it: filtered, sorted, a hundred rows at a time."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqcore.admin.shell.view import Column, Table

ROWS_A_PAGE = 100

Row = Mapping[str, Any]
Link = Callable[[Row], str]


@dataclass(frozen=True)
class Listing:
    """
    The rows of one page.

    count     of all rows that the filter left
    pages     how many pages they are, at least 1
    links     column key -> the URL of a row's cell, "" for none
    flags     column key -> a word for the style of a row's cell: bad, warn, good
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    count: int
    page: int
    pages: int
    empty: str
    title: str = ""
    sort: str = ""
    descending: bool = False
    sortable: bool = False
    links: Mapping[str, Link] = field(default_factory=dict)
    flags: Mapping[str, Link] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The number of the first row, from 1."""
        return (self.page - 1) * ROWS_A_PAGE + 1 if self.rows else 0


def listed(
    table: Table, *, text: str = "", sort: str = "", page: int = 1, name: str = "name",
    sortable: bool = True, links: Mapping[str, Link] | None = None,
    flags: Mapping[str, Link] | None = None, title: str = "",
    keep: Callable[[Row], bool] | None = None,
) -> Listing:
    """
    keep    which rows it is about; None: all
    text    only rows whose `name` has it in it, whatever its case
    sort    a column's key, with `-` in front from the largest down
    page    from 1; one that does not exist is the last
    """
    rows = table.rows if keep is None else [row for row in table.rows if keep(row)]
    if text:
        wanted = text.casefold()
        rows = [row for row in rows if wanted in str(row.get(name, "")).casefold()]
    descending = sort.startswith("-")
    key = sort.removeprefix("-")
    if key in {column.key for column in table.columns}:
        rows = sorted(rows, key=lambda row: _rank(row.get(key)), reverse=descending)
        known = [row for row in rows if row.get(key) is not None]
        rows = known + [row for row in rows if row.get(key) is None]
    else:
        key, descending = "", False
    pages = max(1, -(-len(rows) // ROWS_A_PAGE))
    page = min(max(page, 1), pages)
    begin = (page - 1) * ROWS_A_PAGE
    return Listing(table.columns, rows[begin:begin + ROWS_A_PAGE], len(rows), page, pages,
                   table.empty, title or table.title, key, descending, sortable, links or {},
                   flags or {})


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers before texts; what is unknown comes last either way."""
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, list | tuple):
        return (1, ", ".join(map(str, value)))
    return (1, str(value or ""))
