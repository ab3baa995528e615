"""
The Bloom filter behind the bit maps of consume queue extension units (store.md 3.6, broker.md 7.7).

With enableCalcFilterBitMap the dispatcher sets, for each SQL92 subscription that a message passes,
the bits of `group#topic`; a pull may then skip a message without reading it. Pure optimisation: a
bit that is set by chance only means that the message is read and evaluated.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

ERROR_RATE_PERCENT = 20         # maxErrorRateOfBloomFilter
EXPECTED_COUNT = 32             # expectConsumerNumUseFilter
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF
_MASK_32 = 0xFFFF_FFFF


@dataclass(slots=True, frozen=True)
class BloomFilter:
    """How many bits a map has, and which of them stand for a name."""

    hash_count: int             # k
    bit_count: int              # m, a multiple of 8

    @classmethod
    def for_rate(
        cls, error_rate_percent: int = ERROR_RATE_PERCENT, expected_count: int = EXPECTED_COUNT,
    ) -> BloomFilter:
        """The geometry for an error rate in percent and a number of names (store.md 3.6)."""
        if not 1 <= error_rate_percent < 100:
            raise ValueError(f"error rate {error_rate_percent}: expected 1 to 99 percent")
        if expected_count < 1:
            raise ValueError(f"expected count {expected_count}: expected at least 1")
        wanted = math.log2(100 / error_rate_percent)
        bits = math.ceil(expected_count * wanted * math.log2(math.e))
        return cls(hash_count=math.ceil(wanted), bit_count=(bits + 7) // 8 * 8)

    @property
    def map_size(self) -> int:
        """Bytes of one bit map."""
        return self.bit_count // 8

    def positions(self, name: str) -> tuple[int, ...]:
        """The bits of a name, in the order of the hash functions; two may be equal."""
        low, _ = murmur3_128(name.encode())
        first, second = low & _MASK_32, low >> 32
        found = []
        for i in range(1, self.hash_count + 1):
            mixed = (first + i * second) & _MASK_32
            if mixed & 0x8000_0000:
                mixed ^= _MASK_32
            found.append(mixed % self.bit_count)
        return tuple(found)

    def subscription_positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a consumer group's subscription to a topic."""
        return self.positions(f"{group}#{topic}")


def murmur3_128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """The 128-bit MurmurHash3 in its variant for 64-bit machines: low and high half, unsigned."""
    low = high = seed
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        low ^= _mixed_low(int.from_bytes(data[at:at + 8], "little"))
        low = (_rotated(low, 27) + high) * 5 + 0x52DCE729 & _MASK_64
        high ^= _mixed_high(int.from_bytes(data[at + 8:at + 16], "little"))
        high = (_rotated(high, 31) + low) * 5 + 0x38495AB5 & _MASK_64
    high ^= _mixed_high(int.from_bytes(data[whole + 8:], "little"))
    low ^= _mixed_low(int.from_bytes(data[whole:whole + 8], "little"))
    low ^= len(data)
    high ^= len(data)
    low = low + high & _MASK_64
    high = high + low & _MASK_64
    low, high = _finished(low), _finished(high)
    low = low + high & _MASK_64
    return low, high + low & _MASK_64


_FACTOR_LOW = 0x87C37B91114253D5
_FACTOR_HIGH = 0x4CF5AD432745937F


def _mixed_low(word: int) -> int:
    return _rotated(word * _FACTOR_LOW & _MASK_64, 31) * _FACTOR_HIGH & _MASK_64


def _mixed_high(word: int) -> int:
    return _rotated(word * _FACTOR_HIGH & _MASK_64, 33) * _FACTOR_LOW & _MASK_64


def _rotated(word: int, count: int) -> int:
    return (word << count | word >> 64 - count) & _MASK_64


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return word ^ word >> 33
