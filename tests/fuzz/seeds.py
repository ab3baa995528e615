"""What fuzzing begins with: recorded frames and stores of stock brokers (tests/golden)."""
from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

from mqcore.store.record import parse
from tests.filter.generate import SOUP, VALUES
from tests.support import recorded

STORES = Path(__file__).parents[1] / "golden" / "stores"
NUMBERS = bytes(24)                  # behind the thing itself: see targets/input.pxd
RECORDS_MAX = 8                      # of one segment
SIZE_MAX = 1024                      # of a seed: what is longer is slow


def records_of(segment: bytes) -> Iterator[bytes]:
    """Whole records from the begin of a commit log file."""
    at = 0
    for _ in range(RECORDS_MAX):
        size = int.from_bytes(segment[at:at + 4], "big")
        if segment[at + 4:at + 8] != b"\xda\xa3\x20\xa7":
            return
        yield segment[at:at + size]
        at += size


def of_the_wire() -> Iterator[tuple[str, bytes]]:
    for name in recorded.NAMES:
        for message in recorded.messages(name):
            length = int.from_bytes(message.payload[1:4], "big")
            binary = message.payload[0]
            header = message.payload[4:4 + length]
            yield "binary_header" if binary else "json_header", header
            yield "header_codecs", header + bytes([binary])
            yield "frames", message.frame + b"\0\0"
            yield "answers", message.frame + b"\xff"
            if message.payload[4 + length:5 + length] == b"{":
                yield "json_text", message.payload[4 + length:] + b"\0\x20"


def of_stores() -> Iterator[tuple[str, bytes]]:
    for archive in sorted(STORES.glob("*.tar.gz")):
        with tarfile.open(archive) as files:
            for member in files:
                file = files.extractfile(member)
                if file is None:
                    continue
                data = file.read()
                if "/commitlog/" in member.name:
                    for record in records_of(data):
                        yield from of_a_record(record)
                elif "/consumequeue/" in member.name:
                    yield "queue_entry", data[:200]
                    yield "checksums", data[:256] + NUMBERS
                elif "/index/" in member.name:
                    yield "index_file", data[:400] + NUMBERS
                    yield "key_lookup", data[:712]
                elif "/consumequeue_ext/" in member.name:
                    yield "extension", data[:512] + NUMBERS


def of_a_record(record: bytes) -> Iterator[tuple[str, bytes]]:
    for target in ("log_record", "pulled", "audited"):
        yield target, record
    properties = parse(record)["properties"]
    yield "properties", properties + b"\0\0\0\0\0\0\0"
    yield "send", b"body" + properties + bytes([min(len(properties) // 4, 255), 0])
    yield "program", properties + (2 * len(properties)).to_bytes(4, "little")


def of_filters() -> Iterator[tuple[str, bytes]]:
    for number, value in enumerate(VALUES):
        yield "number", value.encode()
        yield "tags", value.encode() + b"\2"
        yield "tag_expression", f"{value} || b".encode() + b"\0" + value.encode()
        yield "filters", value.encode() * 3
        yield "expression", " ".join(SOUP[number:number + 9]).encode() + b"a\x015\1"


def seeds() -> dict[str, set[bytes]]:
    """target -> what it begins with."""
    found: dict[str, set[bytes]] = {}
    for source in (of_the_wire, of_stores, of_filters):
        for target, data in source():
            if len(data) <= SIZE_MAX:
                found.setdefault(target, set()).add(data)
    return found
