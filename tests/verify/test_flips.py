"""
Whatever byte of a store changes: the damage is found, or the change does no harm.

Harm is judged here by other code than verification's: a flipped record is decoded by the wire
codec, and may differ only in fields of which the format keeps no second account.
"""
from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mqcore.store.verify.store import verify
from mqcore.wire.records import RecordError, decode_record
from tests.store.golden import manifest
from tests.verify.stores import changed, flip

STORES = ["basic", "delay_retry_dlq", "filter_ext", "ipv6", "lmq", "transactions"]
# Neither a CRC, nor queue, nor index says what these were.
WITHOUT_A_SECOND_ACCOUNT = {
    "flag", "sys_flag", "born_timestamp_ms", "born_host", "store_timestamp_ms", "store_host",
    "reconsume_times", "prepared_transaction_offset", "properties",
}
PREPARED, ROLLBACK = 4, 12
ACCOUNTED_PROPERTIES = {            # by transaction type: the rest is in a queue and in the index
    PREPARED: {"KEYS", "UNIQ_KEY"}, ROLLBACK: set(),
}
INDEX_HEADER = 40
DISTANCE = 23
PLACES = 120


def files_of(root: Path) -> list[tuple[Path, int]]:
    """All files that have bytes, but those whose content is free: sorted, with their sizes."""
    return sorted((path, path.stat().st_size) for path in root.rglob("*")
                  if path.is_file() and path.stat().st_size and path.name != "lock")


def places(name: str, files: list[tuple[Path, int]]) -> Iterator[tuple[Path, int, int]]:
    """(file, byte, bit): the same at each run, in each file as often; its ends are among them."""
    dice = Random(name)
    for number in range(PLACES):
        path, size = files[number % len(files)]
        yield path, dice.choice((0, size - 1, *[dice.randrange(size)] * 8)), dice.randrange(8)


def decoded(path: Path, at: int) -> dict[str, Any] | None:
    try:
        return asdict(decode_record(path.read_bytes(), at))
    except RecordError:
        return None


def record_is_as_good(name: str, path: Path, offset: int, before: bytes) -> bool:
    """Whether the changed byte lies outside records, or where nothing depends on it."""
    position = int(path.name) + offset
    message = next((message for message in manifest(name)["messages"] if message["physicalOffset"]
                    <= position < message["physicalOffset"] + message["size"]), None)
    if message is None:            # behind a blank record's header, or behind the end
        return position < manifest(name)["afterRecovery"]["maxPhyOffset"]
    at = message["physicalOffset"] - int(path.name)
    now = decoded(path, at)
    then = asdict(decode_record(before, at))
    if now is None:
        return False
    differing = {field for field in then if now[field] != then[field]}
    kind = then["sys_flag"] & 0xC
    free = {"queue_id", "topic"} if kind in ACCOUNTED_PROPERTIES else set()
    accounted = ACCOUNTED_PROPERTIES.get(kind, {"TAGS", "KEYS", "UNIQ_KEY"})
    return differing <= WITHOUT_A_SECOND_ACCOUNT | free and all(
        now["properties"].get(key) == then["properties"].get(key) for key in accounted)


def index_is_as_good(path: Path, offset: int) -> bool:
    """Whether the byte lies behind the last entry in use, where the next ones will be written."""
    content = path.read_bytes()
    count = struct.unpack_from(">i", content, 36)[0]
    slots = {22_040: 500, 4_440: 100}[len(content)]
    return offset >= INDEX_HEADER + 4 * slots + 20 * count


def checkpoint_is_as_good(path: Path, before: bytes) -> bool:
    """Whether all times are as they were, or earlier: the next start then only reads more."""
    now, then = (struct.unpack_from(">qqq", content) for content in (path.read_bytes(), before))
    return all(0 <= a <= b for a, b in zip(now, then, strict=True))


def does_no_harm(name: str, root: Path, path: Path, offset: int, before: bytes) -> bool:
    folder = path.relative_to(root).parts[0]
    if folder == "commitlog":
        return record_is_as_good(name, path, offset, before)
    if folder == "index":
        return index_is_as_good(path, offset)
    if folder == "checkpoint":
        return checkpoint_is_as_good(path, before)
    return folder in ("config", "consumequeue_ext")    # text, and a side file that may lose units


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_flipped_bit_is_found_or_does_no_harm(name: str, stock: dict[str, Path]) -> None:
    root = stock[name]
    files = files_of(root)
    assert verify(root).status == 0

    for path, offset, bit in places(name, files):
        before = path.read_bytes()
        with flip(path, offset, bit):
            found = verify(root).status != 0
            assert found or does_no_harm(name, root, path, offset, before), (
                f"bit {bit} of byte {offset} of {path.relative_to(root)} was not found")
    assert verify(root).status == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ipv6", "lmq"])
def test_bytes_all_over_a_small_stores_queues_and_index_count(
    name: str, stock: dict[str, Path]
) -> None:
    """Every 23rd of a file, in the next from another one on: all of an entry's, over them."""
    root = stock[name]
    for number, (path, size) in enumerate(files_of(root)):
        if path.relative_to(root).parts[0] not in ("consumequeue", "index"):
            continue
        before = path.read_bytes()
        for offset in range(number % DISTANCE, size, DISTANCE):
            with flip(path, offset, offset % 8):
                assert verify(root).status != 0 or does_no_harm(
                    name, root, path, offset, before), f"byte {offset} of {path}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["basic", "filter_ext", "lmq"])
def test_garbage_in_any_file_ends_in_a_verdict(name: str, stock: dict[str, Path]) -> None:
    root = stock[name]
    files = files_of(root)

    dice = Random(name)
    for path, offset, _ in places(name, files):
        garbage = dice.randbytes(dice.randint(1, 400))[:path.stat().st_size]
        offset = min(offset, path.stat().st_size - len(garbage))
        with changed(path, offset, garbage):
            report = verify(root)
            assert report.status in (0, 1, 3), (path, offset, garbage)
            assert all(finding.line() for finding in report.findings), (path, offset, garbage)


@pytest.mark.parametrize("name", ["basic", "transactions"])
def test_a_file_cut_short_is_found(name: str, stock: dict[str, Path]) -> None:
    """But for the only file of its kind: its length is what all others should have."""
    root = stock[name]
    for path, size in files_of(root):
        folder = path.relative_to(root).parts[0]
        if folder in ("config", "index") and len(list(path.parent.iterdir())) < 2:
            continue
        before = path.read_bytes()
        for length in (0, 1, size // 2, size - 1):
            os.truncate(path, length)
            status = verify(root).status
            path.write_bytes(before)
            assert status in ((0, 1, 3) if folder == "config" else (1, 3)), (path, length)
