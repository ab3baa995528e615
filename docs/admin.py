"""
Writes the methods of Admin, and their table in docs/client/admin.md, from AsyncAdmin:
`make settings`.

usage: python -m docs.admin
"""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mqcore.client.admin.asynchronous import AsyncAdmin

ROOT = Path(__file__).parents[1]
BLOCKING, DOCUMENT = Path("mqcore/client/admin/blocking.py"), Path("docs/client/admin.md")
# The subject of each module.
ABOUT: Final = {
    "topics": "topics", "groups": "groups", "offsets": "offsets", "messages": "messages",
    "sending": "sending", "tracking": "deliveries", "connections": "connected clients",
    "brokers": "brokers", "overview": "all masters at a time", "pops": "POP",
    "statistics": "statistics",
    "traces": "traces", "timed": "times of delivery", "transactions": "transactions",
    "name_servers": "name servers",
    "acl": "access settings",
}
MARK = "    # -- methods of AsyncAdmin: `make settings` writes them "
HEAD = "| about | calls |\n|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|[^\n]*\n)*")
WIDTH = 99


def methods() -> dict[str, list[str]]:
    """The names of the methods by what they are about, in the order of their modules."""
    found: dict[str, list[Callable[..., Any]]] = {module: [] for module in ABOUT}
    for name, method in inspect.getmembers(AsyncAdmin, inspect.isfunction):
        if not name.startswith("_") and hasattr(method, "__wrapped__"):
            found[method.__module__.rpartition(".")[2]].append(method)
    return {ABOUT[module]: [
        method.__name__ for method in sorted(
            some, key=lambda method: inspect.unwrap(method).__code__.co_firstlineno)
    ] for module, some in found.items()}


def blocking(text: str) -> str:
    """The module of Admin with all of its methods behind MARK."""
    before, mark, _ = text.partition(MARK)
    parts = "".join(
        f"\n    # {about}\n" + "".join(f"    {name}: Final = _waits(AsyncAdmin.{name})\n"
                                       for name in names)
        for about, names in methods().items())
    return before + mark.ljust(WIDTH + 1, "-") + "\n" + parts


def document(text: str) -> str:
    """The page with its table of calls."""
    rows = "".join(f"| {about} | {', '.join(f'`{name}`' for name in names)} |\n"
                   for about, names in methods().items())
    return TABLE.sub(lambda _: HEAD + rows, text, count=1)


def main() -> None:
    for path, made in ((ROOT / BLOCKING, blocking), (ROOT / DOCUMENT, document)):
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
