"""
Producers and consumers for Python applications.

The names are loaded when the first of them is asked for: a broker takes only the connections from
here, and need not have the whole client in each of its processes.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqcore.client.names import *  # noqa: F403, all of them, and only for type checkers
else:                                   # these take a misspelled name for one of them

    def __getattr__(name: str) -> Any:
        names = import_module("mqcore.client.names")
        if name == "__all__":
            return names.__all__
        if name not in names.__all__:
            raise AttributeError(f"module 'mqcore.client' has no attribute {name!r}")
        return getattr(names, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module("mqcore.client.names").__all__])
