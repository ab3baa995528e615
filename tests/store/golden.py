"""Stores that a stock broker wrote, and what it read back from them (tests/golden/stores)."""
from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.archives import extract

FOLDER = Path(__file__).parent.parent / "golden" / "stores"
NAMES = sorted(path.name.removesuffix(".manifest.json.gz")
               for path in FOLDER.glob("*.manifest.json.gz"))


@cache
def manifest(name: str) -> dict[str, Any]:
    with gzip.open(FOLDER / f"{name}.manifest.json.gz", "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    if "messagesAs" in found:
        lost = set(found["messagesLost"])
        found["messages"] = [message for message in manifest(found["messagesAs"])["messages"]
                             if message["physicalOffset"] not in lost]
    return found


def unpack(name: str, into: Path) -> Path:
    """A fresh copy of a store, times of files restored; the derived ones are derived here again."""
    derived = {"crashed_lost_cq": ("consumequeue", "index"),
               "crashed_lost_all": ("consumequeue", "index", "checkpoint"),
               "basic_lost_cq": ("consumequeue", "index")}
    with tarfile.open(FOLDER / f"{name.split('_lost_')[0]}.tar.gz") as archive:
        extract(archive, into)
    root = into / name.split("_lost_")[0]
    for lost in derived.get(name, ()):
        target = root / lost
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    return root
