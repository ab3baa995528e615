"""
A pytest plugin (`-p tests.support.plain_install`): what only CI installs is not there, as for
somebody who runs `make test` in a fresh clone.
"""
from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
CI_ONLY = ("spark", "lake")             # extras that .ci/run installs and the Makefile does not
INSTALLED = ("arrow", "test", "lint")   # ... and those that it does


def packages(extras: Sequence[str]) -> set[str]:
    """Names of what `extras` of pyproject.toml ask for; a package is imported by its name here."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return {re.split(r"[^\w.-]", one)[0]
            for extra in extras for one in project["optional-dependencies"][extra]}


class Absent:
    """Finds no package of CI's alone, whatever is installed."""

    def __init__(self) -> None:
        self.names = packages(CI_ONLY) - packages(INSTALLED)

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Absent())
