"""A message broker that unmodified RocketMQ 4.x clients use as it is."""
from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__version__ = "0.2.0.dev0"

# Native modules under names of their own: those of a room are compiled as one, `_native` (setup.py
# `Units`). Who imports one of them is given the room's. It is not the room's `__init__` that enters
# the names: a thread that asks for one of them while another thread is there would find none, or
# half of one, and so would who asks again after an import that failed. It stands here, where all
# that is imported is there already: no thread that finds `mqcore` begun is to come far before it.
_UNIT = "_native"


def _unit_of(name: str) -> str:
    return f"{name.rpartition('.')[0]}.{_UNIT}"


class UnitFinder:
    """Asked for what nobody else finds: no file has the name of such a module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        # -- the interpreter holds a lock here under which nothing can be imported
        unit = _unit_of(name)
        if not unit.startswith("mqcore.") or unit == name:
            return None
        found = PathFinder.find_spec(unit, path)
        if found is None:
            return None
        return ModuleSpec(name, UnitLoader(), origin=found.origin)      # type: ignore[arg-type]


class UnitLoader:
    """A module's place is taken by what it is compiled with."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        name = module.__name__
        unit = import_module(_unit_of(name))
        if name.rpartition(".")[2] not in getattr(unit, "MEMBERS", ()):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.modules[name] = unit


sys.meta_path.append(UnitFinder)
