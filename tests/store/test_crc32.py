"""
CRC-32 of bodies equals zlib's, folded or not, at every length and alignment; CRC-32C of records is
the same with tables, with the processor's instruction, with three parts of a block side by side,
and as RFC 3720 has it.
"""
import random
import zlib

import pytest

from mqcore.store.crc32 import crc32, crc32c, crc32c_way, folds

LENGTH_MAX = 300
LENGTH_MAX_C = 1300
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


@pytest.mark.parametrize("way", [0, 1, 2], ids=["tables", "instruction", "side by side"])
def test_the_vectors_of_rfc_3720_hold(way):
    for text, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43),
                      (bytes(range(32)), 0x46DD794E), (bytes(range(31, -1, -1)), 0x113FDB5C),
                      (b"123456789", 0xE3069283), (b"", 0)):
        assert crc32c(text, way=way) == crc


@pytest.mark.parametrize("way", [1, 2], ids=["instruction", "side by side"])
def test_every_length_and_alignment_has_the_crc32c_of_the_tables(way):
    """Blocks are of 96 to 384 bytes, by 24; what is behind the last is summed word by word."""
    data = random.Random(20261126).randbytes(LENGTH_MAX_C + 64)
    view = memoryview(data)
    for start in range(9):
        for length in range(LENGTH_MAX_C + 1):
            part = view[start:start + length]
            assert crc32c(part, way=way) == crc32c(part, way=0), (start, length)
    for length in (1 << 16, (1 << 20) - 1):
        for fill in (0x00, 0xFF, 0x80):
            part = bytes([fill]) * length
            assert crc32c(part, way=way) == crc32c(part, way=0), (fill, length)


def test_this_processor_uses_the_quickest_way_to_a_crc32c_that_it_has():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((set(line.split()) for line in file
                      if line.startswith(("flags", "Features"))), set())
    wide = {"sse4_2", "pclmulqdq"} <= flags
    assert crc32c_way() == (2 if wide else 1 if {"sse4_2", "crc32"} & flags else 0)
