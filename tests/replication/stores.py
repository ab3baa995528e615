"""Stores of brokers that have one log, held against each other."""
from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mqcore.backup.pieces import data_size
from mqcore.store.verify.store import verify


def log_of(store: Path) -> bytes:
    """All of the commit log; what follows its end is zeros."""
    files, last = sorted((store / "commitlog").iterdir()), b""
    while files and not last:
        last = used(files.pop())
    return b"".join([*(path.read_bytes() for path in files), last])


def used(path: Path) -> bytes:
    """A file up to its last byte that is not zero: most of a segment is a hole, and not read."""
    with path.open("rb") as file:
        return os.pread(file.fileno(), data_size(file.fileno()), 0)


def queues_of(store: Path, topic: str) -> dict[str, bytes]:
    """What is in the files of the topic's queues."""
    folder = store / "consumequeue" / topic
    return {str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0")
            for path in sorted(folder.rglob("*")) if path.is_file()}


def hold_alike(stores: Mapping[str, Path]) -> None:
    """
    AssertionError unless all, by the names of their brokers, which are stopped, have the same bytes
    in their logs, and none has a finding.
    """
    (first, begun), *others = ((name, log_of(store)) for name, store in stores.items())
    assert begun, f"{first} has no log"
    for name, log in others:
        if log != begun:
            pairs = enumerate(zip(begun, log, strict=False))
            at = next((at for at, (one, other) in pairs if one != other), min(len(begun), len(log)))
            raise AssertionError(f"the logs of {first} and {name} differ at {at}: they end at "
                                 f"{len(begun)} and {len(log)}")
    for name, store in stores.items():
        report = verify(store)
        assert report.status == 0, f"{name}: {report}"
