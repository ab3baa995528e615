"""
Random cases by the thousand, and values at the edges of what they may be.

Hypothesis takes some milliseconds to draw a case, which for a native function are all that its test
takes; these dice take microseconds. They make no failing case smaller: assertions show the case.
"""
from __future__ import annotations

import math
import os
import random
import struct
from random import Random

LETTERS = ((0, 0x1F), (0x20, 0x7E), (0x20, 0x7E), (0x7F, 0xFF), (0x100, 0x7FF), (0x800, 0xD7FF),
           (0xE000, 0xFFFF), (0x10000, 0x10FFFF))          # all but the halves of UTF-16
REALS = (0.0, 0.5, 1.1, 1e15, 2.0**53, 2.0**53 + 2, 2.0**63, 1e22, 1e23, 2.2250738585072014e-308,
         2.225073858507201e-308, 5e-324, 1.7976931348623157e308, math.inf)

# -- what runs many times as long, as under sanitizers, throws fewer
FEWER = int(os.environ.get("MQCORE_TEST_FEWER", 1))


def times(usual: int) -> int:
    """So many cases; under sanitizers a part of them: the others are thrown elsewhere."""
    return max(1, usual // FEWER)


def seed_of_run(usual: int | None = None) -> int:
    """What MQCORE_TEST_SEED says; without it the usual one, or another in each run."""
    if usual is None:
        usual = random.SystemRandom().randrange(1 << 30)
    return int(os.environ.get("MQCORE_TEST_SEED", usual))


def dice() -> Random:
    """Of a seed that a failing test shows; MQCORE_TEST_SEED repeats one."""
    seed = seed_of_run()
    print(f"MQCORE_TEST_SEED={seed}")
    return Random(seed)


def text(dice: Random, longest: int, letters: str = "") -> str:
    """Of these letters, or of any: as many of one byte in UTF-8 as of two, three and four."""
    size = dice.randint(0, longest)
    if letters:
        return "".join(dice.choices(letters, k=size))
    return "".join(chr(dice.randint(*dice.choice(LETTERS))) for _ in range(size))


def whole(dice: Random, least: int, most: int) -> int:
    """Of any number of bits; often one of the ends, or near them or zero."""
    if dice.randrange(4) == 0:
        return min(max(dice.choice((least, least + 1, -1, 0, 1, most - 1, most)), least), most)
    size = dice.randint(1, max(most.bit_length(), least.bit_length()))
    return min(max(dice.getrandbits(size) * dice.choice((1, -1)), least), most)


def real(dice: Random) -> float:
    """Any double but NaN: any 64 bits, some decimal places, a whole number, or an edge."""
    kind = dice.randrange(4)
    if kind == 0:
        (value,) = struct.unpack("<d", dice.randbytes(8))
        value = 0.0 if math.isnan(value) else value
    elif kind == 1:
        value = round(dice.uniform(0, 10.0**dice.randint(0, 9)), dice.randint(0, 9))
    elif kind == 2:
        value = float(dice.getrandbits(dice.randint(1, 70)))
    else:
        value = dice.choice(REALS)
        value = math.nextafter(value, dice.choice((0.0, value, math.inf)))
    return dice.choice((value, -value))
