"""What harness.c asks for in its interpreter: addresses of targets."""
from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import mqcore
from tests.debug.building import BUILT
from tests.fuzz.building import TARGETS


def end(unraisable: object) -> NoReturn:
    """What a target raises ends the process, for libFuzzer to see it."""
    traceback.print_exception(unraisable.exc_value)     # type: ignore[attr-defined]
    sys.stderr.flush()
    os.abort()


def address_of(target: str) -> int:
    """Of a C function: int (const uint8_t*, size_t)."""
    sys.unraisablehook = end
    module = importlib.import_module(f"fuzz_targets.{TARGETS[target]}")
    assert all(Path(str(one.__file__)).is_relative_to(BUILT) for one in (mqcore, module))
    if hasattr(module, "begin"):
        module.begin()
    address: int = module.TARGETS[target]
    return address
