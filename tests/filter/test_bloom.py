"""The Bloom filter of queue units: its geometry, its hash, its bit maps."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.filter.bitmap import POSITIONS_MAX, has_positions, set_positions
from mqcore.filter.bloom import BloomFilter, murmur3_128


@pytest.mark.parametrize(("rate", "count", "hashes", "bits"), [
    (20, 32, 3, 112), (10, 32, 4, 160), (1, 100, 7, 960), (50, 1, 1, 8)])
def test_geometry_follows_rate_and_count(rate: int, count: int, hashes: int, bits: int) -> None:
    assert BloomFilter.for_rate(rate, count) == BloomFilter(hashes, bits)


@pytest.mark.parametrize(("rate", "count"), [(0, 32), (100, 32), (20, 0)])
def test_a_geometry_that_cannot_be_is_refused(rate: int, count: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        BloomFilter.for_rate(rate, count)


@pytest.mark.parametrize(("data", "expected"), [
    (b"", "00000000000000000000000000000000"),
    (b"hello", "029bbd41b3a7d8cb191dae486a901e5b"),
    (b"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
])
def test_murmur3_of_known_texts(data: bytes, expected: str) -> None:
    low, high = murmur3_128(data)
    assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == expected


@given(st.text(max_size=40))
def test_a_name_always_finds_its_own_bits(name: str) -> None:
    bloom = BloomFilter.for_rate()
    positions = bloom.positions(name)
    bits = bytearray(bloom.map_size)
    assert not has_positions(bits, positions)

    set_positions(bits, positions)

    assert len(positions) == 3
    assert has_positions(bits, positions)
    assert {i for i in range(bloom.bit_count) if bits[i // 8] & 1 << i % 8} == set(positions)


def test_positions_outside_the_map_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 to 15"):
        set_positions(bytearray(2), [16])
    with pytest.raises(ValueError, match="expected 0 to 15"):
        has_positions(bytes(2), [-1])
    with pytest.raises(ValueError, match=f"at most {POSITIONS_MAX}"):
        has_positions(bytes(2), [0] * (POSITIONS_MAX + 1))
