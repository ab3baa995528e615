"""What harness.c asks for in its interpreter: modules built for fuzzing, and targets' addresses."""
from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tests.fuzz.building import BUILT, TARGETS


class BuiltForFuzzing:
    """Finds a module in build/fuzz if it is there; the others are the ordinary ones."""

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        place = BUILT / (name.replace(".", "/") + EXTENSION_SUFFIXES[0])
        if not place.exists():
            return PathFinder.find_spec(name, path, target) if name == __name__ else None
        return spec_from_file_location(name, place, loader=ExtensionFileLoader(name, str(place)))


def end(unraisable: object) -> NoReturn:
    """What a target raises ends the process, for libFuzzer to see it."""
    traceback.print_exception(unraisable.exc_value)     # type: ignore[attr-defined]
    sys.stderr.flush()
    os.abort()


def address_of(target: str) -> int:
    """Of a C function: int (const uint8_t*, size_t)."""
    sys.meta_path.insert(0, BuiltForFuzzing())
    sys.unraisablehook = end
    module = importlib.import_module(f"tests.fuzz.targets.{TARGETS[target]}")
    assert Path(str(module.__file__)).is_relative_to(BUILT)
    if hasattr(module, "begin"):
        module.begin()
    address: int = module.TARGETS[target]
    return address
