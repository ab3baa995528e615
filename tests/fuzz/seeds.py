"""What fuzzing begins with: recorded frames and stores of stock brokers (tests/golden)."""
from __future__ import annotations

import json
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from mqcore.backup.manifest import Entry, Manifest, Part, encode
from mqcore.replication import epochs, greeting
from mqcore.replication.greet import ANNOUNCE, TELL
from mqcore.store.record import parse
from tests.acl import requests
from tests.filter.generate import SOUP, VALUES
from tests.support import recorded

STORES = Path(__file__).parents[1] / "golden" / "stores"
NUMBERS = bytes(24)                  # behind the thing itself: see targets/input.pxd
RECORDS_MAX = 8                      # of one segment
BLANK = struct.pack(">iI", 0, 0xCBD43194)       # its size becomes what it has to be ...
WRONG_BLANK = struct.pack(">iI", 1, 0xCBD43194)      # ... unless it is odd
SIZE_MAX = 1024                      # of a seed: what is longer is slow
WORLD_SEED = 5                       # of the accounts that are asked about
SIGNATURE_HERE = b"its-signature-comes-in-here-"      # as long as one
REQUESTS = 150

ACCESS_FILES = (
    """globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.{1,2}
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 1.1.1.1,1.1.1.2
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB]
  groupPerms: [groupA=DENY]
dataVersion: [{counter: 3, timestamp: 1}]
""",
    "accounts: [&a {accessKey: abcdefgh, secretKey: 0x1234567, admin: yes}, *a]\n",
    "globalWhiteRemoteAddresses: ['1::1-2', '*:*:*:*:*:*:*:*']\n? accounts\n: !!null\n",
)


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
    # a log of it and a blank, in frames of 100 bytes
    for log in (record, record + BLANK, record + WRONG_BLANK, 2 * record):
        yield "master_frames", log + bytes([84, 40, 1, 8])
        yield "master_frames", log + bytes([84, 40, 1, 12])          # and what others have of it
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


def of_pop() -> Iterator[tuple[str, bytes]]:
    names = b"grouptopic".ljust(16, b"\0")
    queue = struct.pack(">BBhiqihh", 1, 0, 0, 0, 5, 0, 5, 5) + names
    fifo = struct.pack(">BBhiqihh", 1, 1, 0, 1, 0, 3, 5, 5) + names
    message = struct.pack(">BBhiqqqii", 3, 0, 1, 0, 7, 1000, 2000, 1000, 0)
    batch = struct.pack(">BBhiqqqii", 3, 0, 1, 1, 0, 1000, 2000, 1000, 0)
    attempt = struct.pack(">BBhiq8s", 4, 8, 0, 1, 1, b"attempts")
    plain = b"".join(struct.pack(">BBhiq", kind, 0, 0, 0, 7) for kind in (5, 7, 8, 9, 2))
    passed = struct.pack(">BBhiqq", 6, 0, 0, 0, 12, 4200)
    for records in (queue + message, queue + message + passed + plain,
                    queue + fifo + batch + attempt + message):
        yield "pop_file", records + bytes([len(records) // 4])
    yield "receipt", b"1 1795330021030 10000 2 0 broker-s 0 1 88753"
    yield "receipt", b"1 1795330021030 10000 999 2 b 65534 1"


def of_replication() -> Iterator[tuple[str, bytes]]:
    for reports in ((0, 0, 100), (ANNOUNCE, 0, 4096, 5000), (4096, 4200), (ANNOUNCE, 4300, 4300),
                    (ANNOUNCE, 4096, TELL, 4096, 4200, 5000)):
        yield "slave_reports", struct.pack(f">{len(reports)}q", *reports) + b"\x10\0\2"
    greeted = struct.pack(">qi28xqi", ANNOUNCE, 28, 512, 0)
    yield "master_frames", greeted + b"\1\7\0\1"
    table = epochs.first("b/0", 0, 1).begun(100, "b/1", 2)
    standing = {**epochs.as_json(table), "state": "follows",
                "told": {"role": "slave", "brokerId": 1}}
    yield "epochs_file", json.dumps(standing).encode() + b"\x50\xa0"
    words = greeting.words("b", "c", 512, table)
    yield "greeting_words", greeting.HEAD.pack(200, 60, 80, 7) + words + b"\x50"


def of_documents() -> Iterator[tuple[str, bytes]]:
    for text in ACCESS_FILES:
        yield "access_file", text.encode()
    yield "checkpoint_file", struct.pack(">qqq", 1 << 40, 1 << 39, -1)
    id_ = "20260101T000000Z-0001"
    made = encode(Manifest(
        1, id_, "/s", "h", "b", 1, 2, 0, 100, 512, 3, 4, "", False, "", 0,
        [Entry(f"commitlog/{0:020d}", 512, 1, 1, [Part(id_, 0, 100, [7])]),
         Entry("config/topics.json", 5, 1, 1, [Part(id_, 0, 5, [7])])]))
    yield "backup_manifest", made.partition(b',"crc32c"')[0].removeprefix(b'{"backup":') + b"\1"
    yield "backup_manifest", made + b"\0"
    for count in range(0, 40, 2):
        yield "backup_stream", b"content" + bytes([count])
    for steps in (b"\x00\xff\x04\0\x06\0", b"\x02\x50\x03\x09\x05\0\x03\xff\x04\0",
                  b"\x01\xff\x07\x05"):
        yield "tls_records", 3 * steps + b"\0\x07\x02"
    yield "tls_records", b"\x16\x03\x01\0\x05hello" + b"\3\0\0"
    yield "tls_records", b"in the clear" + b"\3\2\0"


def of_access() -> Iterator[tuple[str, bytes]]:
    """Requests as tests/acl makes them, each under both kinds of rules."""
    chance = Random(WORLD_SEED)
    for number in range(REQUESTS):
        command = requests.request(chance)
        assert command.ext is not None
        proof = command.ext.get("Signature")
        if number % 3 == 0:
            command.ext[chance.choice(sorted(command.ext))] = ""
        raw = requests.frame(command)
        length = int.from_bytes(raw[1:4], "big")
        header, body = raw[4:4 + length], raw[4 + length:]
        if proof:
            header = header.replace(proof.encode(), SIGNATURE_HERE)
        body = body[:len(body) // 4 * 4]
        yield "guard", header + body + bytes([len(body) // 4, number << 1 & 0xFE | raw[0]])


def seeds() -> dict[str, set[bytes]]:
    """target -> what it begins with."""
    found: dict[str, set[bytes]] = {}
    for source in (of_the_wire, of_stores, of_filters, of_pop, of_replication, of_documents,
                   of_access):
        for target, data in source():
            if len(data) <= SIZE_MAX:
                found.setdefault(target, set()).add(data)
    return found
