"""Plain values of an access file, each with the line that it stands in."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIZE_MAX = 32 << 20                # bytes of a file


class AclFileError(ValueError):
    """A file that cannot be used; the text names it, the line, and what was expected."""

    def __init__(self, path: str, line: int, what: str) -> None:
        super().__init__(f"{path}:{line}: {what}" if line else f"{path}: {what}")


@dataclass(slots=True)
class Node:
    """value: None, bool, int, str, list[Node] or dict[str, Node]; line: from 1 on."""

    value: Any
    line: int
    count: int = 1                     # of the values in it
    size: int = 0                      # characters of their text
    height: int = 0                    # levels below it
    takes: bool = False                # by `<<` from other maps


def text(value: Any) -> str:
    """What Java makes of a value where it expects text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def plain(node: Node) -> Any:
    """The value without lines: for a file that is written again."""
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {name: plain(item) for name, item in node.value.items()}
    return node.value
