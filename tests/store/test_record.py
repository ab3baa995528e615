"""Records are read as the stock broker wrote them, and nothing else passes for one."""
import ctypes
import hashlib
import mmap
import os
import random
import struct
import zlib

import pytest

from mqcore.layout import MAGIC_MESSAGE, RECORD_FIXED_SIZE
from mqcore.store.record import parse, tags_code
from mqcore.wire.properties import decode_properties
from tests.store import golden
from tests.store.harness import log_records
from tests.support.dice import times

V4_RECORD = bytes.fromhex(       # store.md 16.3, at position 0
    "000000a6daa320a73610a686000000010000000700000000000000000000000000000000000000000000018bcfe5687b"
    "0a0102030000162e000001a1fbf958e90a09080700002a9f0000000200000000000000630000000568656c6c6f06546f"
    "7069635400404b455953016b31206b3220206b3302554e49515f4b455901304130413041304130303031303030303030"
    "30303030303030303030303102544147530154616741")
V6_RECORD = bytes.fromhex(       # store.md 16.4, at position 166
    "000000bbdaa320a7770659160000000100000007000000000000000100000000000000a6000000300000018bcfe5687b"
    "20010db80000000000000000000000010000162e000001a1fbf9590920010db800000000000000000000000200002a9f"
    "00000002000000000000006300000002763606546f7069635400404b455953016b31206b3220206b3302554e49515f4b"
    "45590130413041304130413030303130303030303030303030303030303030303102544147530154616741")
FIELDS = ("physicalOffset", "size", "topic", "queueId", "queueOffset", "sysFlag", "flag",
          "bornTimestamp", "storeTimestamp", "preparedTransactionOffset")


def test_the_documented_ipv4_record_reads_as_documented():
    record = parse(V4_RECORD, 0)
    properties = decode_properties(record.pop("properties").decode())

    assert record == {
        "size": 166, "queueId": 1, "flag": 7, "queueOffset": 0, "physicalOffset": 0, "sysFlag": 0,
        "bornTimestamp": 1700000000123, "storeTimestamp": 1795228784873,
        "preparedTransactionOffset": 99, "body": b"hello", "topic": "TopicT"}
    assert (properties["KEYS"], properties["TAGS"]) == ("k1 k2  k3", "TagA")


def test_the_documented_ipv6_record_reads_as_documented():
    record = parse(V6_RECORD, 166)
    assert (record["size"], record["sysFlag"], record["body"], record["queueOffset"],
            record["storeTimestamp"]) == (187, 0x30, b"v6", 1, 1795228784905)


def test_the_documented_blank_record_is_blank():
    assert parse(bytes.fromhex("00000073cbd43194")) == {"blank": True, "size": 115}


@pytest.mark.parametrize("name", golden.NAMES)
def test_every_record_of_a_stock_store_reads_as_its_manifest_says(name, tmp_path):
    manifest = golden.manifest(name)
    root = golden.unpack(name, tmp_path)
    found = list(log_records(root / "commitlog", manifest["settings"]["mappedFileSizeCommitLog"],
                             manifest["afterRecovery"]["endOfLastMessage"]))

    blanks = [[r["physicalOffset"], r["size"]] for r in found if r.get("blank")]
    records = [r for r in found if not r.get("blank")]
    assert blanks == manifest["blankRecords"]
    assert len(records) == manifest["afterRecovery"]["messageCount"] == len(manifest["messages"])
    for record, message in zip(records, manifest["messages"], strict=True):
        assert {key: record[key] for key in FIELDS} == {key: message[key] for key in FIELDS}
        assert hashlib.sha256(record["body"]).hexdigest() == message["bodySha256"]
        assert zlib.crc32(record["body"]) & 0x7FFF_FFFF == message["bodyCRC"]
        assert decode_properties(record["properties"].decode()) == message["properties"]


@pytest.mark.parametrize(("tags", "code"), [
    ("TagA", 2598919), ("tg0", 114717), ("中文", 646394), ("\U0001F600", 1772899),
    ("polygenelubricants", -2147483648), ("", 0)])
def test_a_tag_code_is_the_java_hash_of_the_utf16_code_units(tags, code):     # store.md 16.2
    assert tags_code(tags.encode()) == code


def java_hash(text: str) -> int:
    """As Java's String.hashCode: over UTF-16 code units."""
    units = text.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at:at + 2], "big")) & 0xFFFFFFFF
    return code - (code >> 31 << 32)


@pytest.mark.parametrize("odd", ["", "\u00e9", "\u4e2d", "\U0001f600"])
def test_a_hash_is_javas_wherever_other_letters_than_ascii_stand(odd):
    letters = "0A0B7F~}{zyxwvu"
    for length in range(len(letters) + 1):
        for place in range(length + 1):
            text = letters[:place] + odd + letters[place:length]
            assert tags_code(text.encode()) == java_hash(text)


def test_every_ordinary_tag_code_of_the_stock_stores_is_ours():
    messages = [m for name in golden.NAMES for m in golden.manifest(name)["messages"]
                if m["topic"] != "SCHEDULE_TOPIC_XXXX" and m["tagsCode"] >= -2**31]
    assert len(messages) > 2000
    for message in messages:
        assert tags_code(message["properties"].get("TAGS", "").encode()) == message["tagsCode"]


@pytest.mark.parametrize(("start", "patch", "wrong"), [
    (4, b"\xda\xa3\x20\xa8", "magic"), (0, b"\x00\x00\x00\xa7", "sizes"),
    (0, b"\x00\x00\x00\xa5", "sizes"), (0, b"\x7f\xff\xff\xff", "sizes"),
    (0, b"\xff\xff\xff\xff", "sizes"), (84, b"\xff\xff\xff\xff", "sizes"),
    (84, b"\x00\x00\x00\x51", "sizes"), (93, b"\x80", "sizes"), (88, b"H", "body CRC"),
    (28, b"\x01", "position"), (100, b"\x00\x41", "sizes")])
def test_a_damaged_record_is_refused_by_what_is_wrong(start, patch, wrong):
    damaged = V4_RECORD[:start] + patch + V4_RECORD[start + len(patch):] + bytes(16)
    with pytest.raises(ValueError, match=wrong):
        parse(damaged, 0)


def at_the_end_of_memory(raw):
    """`raw` with a page behind it that may not be read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    memory[page - len(raw):page] = raw
    return memory, memoryview(memory)[page - len(raw):page]


@pytest.mark.parametrize("flags", [0, 0x10, 0x20, 0x30])
def test_a_record_too_short_for_its_hosts_is_refused_without_reading_on(flags):
    size = RECORD_FIXED_SIZE
    raw = bytearray(size)
    struct.pack_into(">ii", raw, 0, size, MAGIC_MESSAGE)
    struct.pack_into(">i", raw, 36, flags)
    pid = os.fork()                                 # reading on would end the process
    if pid == 0:
        code = 1
        try:
            _, view = at_the_end_of_memory(raw)
            code = 0 if parse(view)["size"] == size and flags == 0 else 2
        except ValueError as error:
            code = 0 if flags and "sizes" in str(error) else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_random_damage_never_crashes_and_never_passes_the_checks():
    dice = random.Random(1)
    for _ in range(times(20_000)):
        damaged = bytearray(V6_RECORD)
        at = dice.randrange(len(damaged))
        damaged[at] ^= 1 << dice.randrange(8)
        cut = dice.choice((len(damaged), dice.randrange(8, len(damaged))))
        try:
            record = parse(bytes(damaged[:cut]), 166)
        except ValueError:
            continue
        assert record.get("blank") or record["size"] <= cut
        if not record.get("blank"):
            assert zlib.crc32(record["body"]) & 0x7FFF_FFFF == 0x77065916
