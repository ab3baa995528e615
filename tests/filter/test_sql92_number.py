"""Numbers in property texts are read exactly, whatever their form and length."""
from __future__ import annotations

import math

import pytest

from mqcore.filter.sql92_number import real, whole
from tests.filter import reference
from tests.filter.generate import VALUES
from tests.support.dice import dice, times
from tests.support.dice import real as random_real

PIECES = ("0", "1", "9", "5", ".", "e", "E", "-", "+", "x", "X", "p", "f", "d", "L", " ", "\t",
          "NaN", "Infinity", "00000000", "123456789", "e-30", "0x", "５", "a")


def same(left: float | None, right: float | None) -> bool:
    if left is None or right is None or math.isnan(left) or math.isnan(right):
        return (left is None, left is not None and math.isnan(left)) \
            == (right is None, right is not None and math.isnan(right))
    return left == right and math.copysign(1, left) == math.copysign(1, right)


def reference_real(text: str) -> float | None:
    try:
        return reference.read_real(text)
    except reference.Raised:
        return None


def reference_whole(text: str) -> int | None:
    try:
        return int(reference.read(text, "long").value)
    except reference.Raised:
        return None


def test_a_text_is_read_as_the_reference_reads_it() -> None:
    cases = dice()
    for text in (*VALUES, *("".join(cases.choices(PIECES, k=cases.randint(0, 8)))
                            for _ in range(times(20_000)))):
        assert same(real(text.encode()), reference_real(text)), text
        assert whole(text.encode()) == reference_whole(text), text


def test_the_shortest_text_of_a_double_is_read_back_to_the_bit() -> None:
    cases = dice()
    for value in (random_real(cases) for _ in range(times(20_000))):
        assert same(real(repr(value).replace("inf", "Infinity").encode()), value), value
        if math.isfinite(value):
            assert same(real(value.hex().encode()), value), value


def test_long_decimals_round_to_the_nearest_double() -> None:
    cases = dice()
    for _ in range(times(2_000)):
        text = f"{cases.randrange(10**cases.randint(1, 900))}e{cases.randint(-1_300, 400)}"
        assert same(real(text.encode()), float(text)), text


def test_long_hexadecimals_round_to_the_nearest_double() -> None:
    cases = dice()
    for _ in range(times(2_000)):
        text = f"0x{cases.randrange(16**cases.randint(1, 60)):x}p{cases.randint(-1_300, 900)}"
        assert same(real(text.encode()), reference_real(text)), text


@pytest.mark.parametrize(("text", "expected"), [
    ("0." + "0" * 400 + "1e401", 1.0),
    ("1" + "0" * 30_000 + "e-30000", 1.0),
    ("1e99999999999999999999999", math.inf),
    ("1e-99999999999999999999999", 0.0),
    ("9007199254740992.5" + "0" * 2_000 + "1", 9007199254740992.0),
    ("9007199254740993" + "0" * 2_000 + "." + "0" * 900 + "1e-2000", 9007199254740994.0),
    ("2.2250738585072011e-308", 2.2250738585072011e-308),
], ids=lambda value: str(value)[:24])
def test_numbers_with_more_digits_than_a_double_holds(text: str, expected: float) -> None:
    assert same(real(text.encode()), expected)


@pytest.mark.parametrize("text", [
    "9223372036854775807", "-9223372036854775808", "+1", "0" * 4_000 + "7", "٣", "１２", "-०९"])
def test_whole_numbers_up_to_64_bits_in_any_digits(text: str) -> None:
    assert whole(text.encode()) == int(text)


@pytest.mark.parametrize("text", [
    b"", b"-", b"9223372036854775808", b"-9223372036854775809", b"1 ", b" 1", b"1.0", b"1e3",
    "𝟓".encode(), b"\x80", b"1\xff", "٣".encode()[:1], "１".encode()[:2],
    # no UTF-8: a byte that does not go on, a form that is too long
    b"\xd9$", b"\xef\xbc1", b"\xe0\x99\xa3"])
def test_what_is_no_whole_number_is_none(text: bytes) -> None:
    assert whole(text) is None
