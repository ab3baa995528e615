"""
CRC-32 of bodies equals zlib's, folded or not, at every length and alignment; CRC-32C of records is
the same with the processor's instruction and with tables, and as RFC 3720 has it.
"""
import random
import zlib

import pytest

from mqcore.store.crc32 import crc32, crc32c, folds, steps

LENGTH_MAX = 300
DATA = random.Random(20261121).randbytes(LENGTH_MAX + 64)
WAYS = pytest.mark.parametrize("tables_only", [False, True], ids=["folded", "tables"])


@WAYS
def test_every_length_from_0_to_300_has_zlibs_crc(tables_only):
    for length in range(LENGTH_MAX + 1):
        data = DATA[:length]
        assert crc32(data, tables_only=tables_only) == zlib.crc32(data), length


@WAYS
def test_every_alignment_has_zlibs_crc(tables_only):
    view = memoryview(DATA)
    for start in range(64):
        for length in (63, 64, 65, 127, 128, 129, 191, 192, 256, 300):
            part = view[start:start + length]
            assert crc32(part, tables_only=tables_only) == zlib.crc32(part), (start, length)


@WAYS
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80])
def test_a_megabyte_of_one_byte_has_zlibs_crc(fill, tables_only):
    data = bytes([fill]) * (1 << 20)
    assert crc32(data, tables_only=tables_only) == zlib.crc32(data)


@WAYS
def test_the_documented_vectors_hold(tables_only):          # store.md 16.1, bit 31 still there
    for text, stored in ((b"hello", 0x3610A686), (b"v6", 0x77065916), (b"123456789", 0x4BF43926)):
        assert crc32(text, tables_only=tables_only) & 0x7FFF_FFFF == stored


def test_this_processor_uses_its_carry_less_multiplication_when_it_has_one():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    assert folds() == ("pclmulqdq" in flags and "sse4_1" in flags)


@WAYS
def test_the_vectors_of_rfc_3720_hold(tables_only):
    for text, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43),
                      (bytes(range(32)), 0x46DD794E), (bytes(range(31, -1, -1)), 0x113FDB5C),
                      (b"123456789", 0xE3069283), (b"", 0)):
        assert crc32c(text, tables_only=tables_only) == crc


def test_every_length_and_alignment_has_the_same_crc32c_with_and_without_the_instruction():
    view = memoryview(DATA)
    for start in range(9):
        for length in range(LENGTH_MAX + 1):
            part = view[start:start + length]
            assert crc32c(part) == crc32c(part, tables_only=True), (start, length)


def test_this_processor_uses_its_crc32c_instruction_when_it_has_one():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((set(line.split()) for line in file
                      if line.startswith(("flags", "Features"))), set())
    assert steps() == bool({"sse4_2", "crc32"} & flags)
